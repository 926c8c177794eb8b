// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "bench/micro/bench_kernels.hpp"
#include "bench/micro/kernel_timer.hpp"
#include "bench/micro/targets.hpp"
#include "kernels/value_coding.hpp"

// Values in fewer bits. Gradients are normal.
//   feedback_quantize/CODING/...     the fused pass over gradient and residual; the residual has
//                                    settled, so it holds what the codes missed the step before
//   feedback_quantize_8/CODING/...   the same for 8 owners
//   quantize, dequantize             kPacked values in the cache, as a selection leaves them

namespace winnow::bench {
namespace {

constexpr std::size_t kPacked = 256'000;

kernels::ValueFormat format_of(std::uint8_t id, kernels::Rounding rounding) {
  const kernels::ValueCoding& coding = kernels::value_codings()[id - 1u];
  return {&coding, coding.default_block, rounding};
}

void fill_normal(std::span<float> values) {
  std::mt19937 random(20240229);
  std::normal_distribution<float> normal;
  // Drawing is slow; a period that is not a multiple of a block does as well.
  const std::size_t drawn = std::min(values.size(), (std::size_t{1} << 20) + 7);
  for (std::size_t i = 0; i < drawn; ++i) values[i] = normal(random);
  for (std::size_t i = drawn; i < values.size(); ++i) values[i] = values[i - drawn];
}

/// A parameter of kCount elements, used by all codings in turn.
class Parameter {
 public:
  static Parameter& get() {
    static Parameter parameter;
    return parameter;
  }

  void measure(benchmark::State& state, const kernels::ValueFormat& format, std::uint32_t owners) {
    const kernels::Partition partition(owners, kCount);
    std::vector<std::span<std::byte>> out;
    std::size_t taken = 0;
    for (std::uint32_t o = 0; o < owners; ++o) {
      const std::size_t bytes = kernels::value_bytes(format, partition.local_count(o));
      out.push_back(messages_.span().subspan(taken, bytes));
      taken += bytes;
    }
    const kernels::FeedbackPiece piece{gradient_.span(), residual_.span(), 0};
    const auto step = [&] {
      std::uint32_t not_finite = 0;
      kernels::feedback_quantize({.workspace = &workspace_}, {.pieces = {{&piece, 1}, &piece},
                                                              .partition = partition,
                                                              .format = format,
                                                              .key = {.call = call_++},
                                                              .out = out,
                                                              .not_finite = &not_finite});
    };
    std::fill(residual_.span().begin(), residual_.span().end(), 0.0F);
    for (int i = 0; i < 2; ++i) step();
    KernelTimer::get().run(state, {.kernel = step});
    state.counters["bits_per_value"] = 8 * static_cast<double>(taken) / static_cast<double>(kCount);
  }

 private:
  Parameter() { fill_normal(gradient_.span()); }

  kernels::HostArray<float> gradient_{kCount}, residual_{kCount};
  kernels::HostArray<std::byte> messages_{kCount * sizeof(float) + 4096};
  Workspace workspace_;
  std::uint64_t call_ = 0;
};

template <std::uint8_t kId, kernels::Rounding kRounding, std::uint32_t kOwners>
void feedback_quantize(benchmark::State& state) {
  Parameter::get().measure(state, format_of(kId, kRounding), kOwners);
}

template <std::uint8_t kId, kernels::Rounding kRounding, bool kDecode>
void packed(benchmark::State& state) {
  const kernels::ValueFormat format = format_of(kId, kRounding);
  kernels::HostArray<float> values(kPacked), work(kPacked);
  kernels::HostArray<std::byte> coded(kernels::value_bytes(format, kPacked));
  fill_normal(values.span());
  const auto encode = [&] { kernels::quantize({}, format, {}, work.span(), coded.span()); };
  const auto decode = [&] {
    kernels::dequantize({}, format, kPacked, coded.span(), 0, work.span());
  };
  const auto restore = [&] {
    std::copy(values.span().begin(), values.span().end(), work.span().begin());
  };
  restore();
  encode();
  const double seconds =
      KernelTimer::get().run(state, kDecode ? Round{.kernel = decode, .warm = decode}
                                            : Round{.kernel = encode, .warm = restore});
  state.counters["ns_per_value"] = 1e9 * seconds / static_cast<double>(kPacked);
}

template <std::uint8_t kId, kernels::Rounding kRounding>
void register_coding(const std::string& suffix) {
  const std::string name = std::string(kernels::value_codings()[kId - 1].name) + suffix;
  const std::string count = std::to_string(kCount), few = std::to_string(kPacked);
  register_on_targets("feedback_quantize/" + name, count, feedback_quantize<kId, kRounding, 1>);
  register_on_targets("feedback_quantize_8/" + name, count, feedback_quantize<kId, kRounding, 8>);
  register_on_targets("quantize/" + name, few, packed<kId, kRounding, false>);
  register_on_targets("dequantize/" + name, few, packed<kId, kRounding, true>);
}

}  // namespace

void register_values() {
  constexpr auto kNearest = kernels::Rounding::nearest, kStochastic = kernels::Rounding::stochastic;
  register_coding<1, kNearest>("");
  register_coding<2, kNearest>("");
  register_coding<3, kNearest>("");
  register_coding<4, kNearest>("");
  register_coding<4, kStochastic>("_stochastic");
  register_coding<5, kNearest>("");
  register_coding<6, kNearest>("");
  register_coding<7, kNearest>("");
  register_coding<8, kNearest>("");
  register_coding<9, kNearest>("");
}

}  // namespace winnow::bench
