// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "bench/micro/bench_kernels.hpp"
#include "bench/micro/kernel_timer.hpp"
#include "bench/micro/targets.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/feedback_select.hpp"
#include "kernels/residual_add.hpp"

// The passes over gradient and residual. Gradients are normal, 1 % is selected.
//   residual_add      the yardstick against itself: 1, or the machine is too noisy to measure on
//   look_ahead        weights minus a share of the residual, into other memory
//   divide_by_moment  gradients divided by the roots of their second moments
//   fused_first       feedback_select on a parameter's first step: residual zero, bound from a
//                     sample
//   fused_steady      feedback_select once residual and bound have settled
//   fused_steady/1048576/density:D  the same in the cache, where the yardstick is, too
//   fused_moment      the same of gradients that it divides by the roots of their second moments

namespace winnow::bench {
namespace {

constexpr std::size_t kCachedCount = 1 << 20;
constexpr int kSettlingSteps = 96;  // about 1 / density

/// Error feedback and selection over one parameter, step after step.
class Selection {
 public:
  Selection(std::size_t count, double density)
      : pool_(count),
        gradient_(count),
        residual_(count),
        moment_(count),
        index_(static_cast<std::size_t>(static_cast<double>(count) * density)),
        value_(index_.size()) {
    std::mt19937 random(20240229);
    std::normal_distribution<float> normal;
    for (float& x : pool_.span()) x = normal(random);
    refill();
    step();  // touches what workspace and message need
    forget();
  }

  /// Makes a new gradient: the pool, shifted by another amount each time.
  void refill() {
    shift_ = (shift_ * 5 + 7919 * 16) % count();
    std::memcpy(gradient_.span().data(), pool_.span().data() + shift_,
                (count() - shift_) * sizeof(float));
    std::memcpy(gradient_.span().data() + (count() - shift_), pool_.span().data(),
                shift_ * sizeof(float));
  }

  void forget() {
    bound_ = {};
    std::memset(residual_.span().data(), 0, count() * sizeof(float));
    settled_ = false;
  }

  /// From here on gradients are divided by the roots of their second moments, or no longer. Those
  /// stay normal.
  void divide_by_moment(bool on) {
    by_ = {};
    if (!on) return;
    std::ranges::fill(moment_.span(), 1.0F);
    by_ = {.kind = kernels::Precondition::Kind::second_moment,
           .moment = moment_.span().data(),
           .divide = {.decay = 0.99F, .weight = 0.01F, .floor = 1e-8F}};
  }

  void step() {
    const kernels::FeedbackSelectJob job{
        .spans = {.gradient = gradient_.span(), .residual = residual_.span(), .precondition = by_},
        .index = index_,
        .value = value_,
        .state = &bound_,
        .result = &last_};
    kernels::feedback_select({.workspace = &workspace_}, {&job, 1});
    candidates_ += last_.candidates;
    passes_ += last_.passes;
  }

  /// Once for all targets, since they make the same bits.
  void settle() {
    if (settled_) return;
    forget();
    for (int i = 0; i < kSettlingSteps; ++i) {
      refill();
      step();
    }
    settled_ = true;
  }

  void measure(benchmark::State& state, const std::function<void()>& prepare) {
    candidates_ = passes_ = 0;
    KernelTimer::get().run(state,
                           {.kernel = [this] { step(); }, .prepare = prepare, .count = count()});
    const auto rounds = static_cast<double>(state.iterations());
    state.counters["candidates_per_k"] =
        static_cast<double>(candidates_) / rounds / static_cast<double>(index_.size());
    state.counters["passes"] = static_cast<double>(passes_) / rounds;
  }

  static Selection& get() {
    static Selection selection(kCount, 0.01);
    return selection;
  }

 private:
  std::size_t count() const { return pool_.span().size(); }

  kernels::HostArray<float> pool_, gradient_, residual_, moment_;
  kernels::Precondition by_;
  std::vector<std::uint32_t> index_;
  std::vector<float> value_;
  Workspace workspace_;
  kernels::SelectBound bound_;
  kernels::SelectResult last_{};
  std::uint64_t candidates_ = 0, passes_ = 0;
  std::size_t shift_ = 0;
  bool settled_ = false;
};

void residual_add(benchmark::State& state) {
  kernels::HostArray<float> residual(kCount), gradient(kCount);
  const auto add = [&] { kernels::residual_add(Exec{}, residual.span(), gradient.span()); };
  KernelTimer::get().run(state, {.kernel = add});
}

void look_ahead(benchmark::State& state) {
  kernels::HostArray<float> weights(kCount), residual(kCount), ahead(kCount);
  KernelTimer::get().run(state, {.kernel = [&] {
                           kernels::look_ahead(Exec{}, weights.span(), residual.span(), 2.5F,
                                               ahead.span());
                         }});
}

void divide_by_moment(benchmark::State& state) {
  kernels::HostArray<float> gradient(kCount), moment(kCount);
  const kernels::SecondMomentStep by{.decay = 0.99F, .weight = 0.01F, .floor = 1e-8F};
  KernelTimer::get().run(state, {.kernel = [&] {
                           kernels::divide_by_moment(Exec{}, gradient.span(), moment.span(), by);
                         }});
}

void fused_first(benchmark::State& state) {
  Selection& selection = Selection::get();
  selection.measure(state, [&] {
    selection.refill();
    selection.forget();
  });
}

void fused_steady(benchmark::State& state) {
  Selection& selection = Selection::get();
  selection.settle();
  selection.measure(state, [&] { selection.refill(); });
}

void fused_cached(benchmark::State& state, double density) {
  Selection selection(kCachedCount, density);
  selection.settle();
  selection.measure(state, [&] { selection.refill(); });
}

void fused_moment(benchmark::State& state) {
  Selection& selection = Selection::get();
  selection.settle();
  selection.divide_by_moment(true);
  selection.measure(state, [&] { selection.refill(); });
  selection.divide_by_moment(false);
}

}  // namespace

void register_select() {
  const std::string count = std::to_string(kCount);
  register_on_targets("residual_add", count, residual_add);
  register_on_targets("look_ahead", count, look_ahead);
  register_on_targets("divide_by_moment", count, divide_by_moment);
  register_on_targets("fused_first", count, fused_first);
  register_on_targets("fused_steady", count, fused_steady);
  register_on_targets("fused_moment", count, fused_moment);
  for (const std::string density : {"0.001", "0.01", "0.1"}) {
    const std::string argument = std::to_string(kCachedCount) + "/density:" + density;
    benchmark::RegisterBenchmark(("fused_steady/" + argument).c_str(), fused_cached,
                                 std::stod(density))
        ->Unit(benchmark::kMillisecond);
  }
}

void touch_select_memory() {
  Selection::get();
}

}  // namespace winnow::bench
