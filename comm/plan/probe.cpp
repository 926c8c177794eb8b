// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/plan/probe.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <new>
#include <vector>

#include "comm/transport/abort_on_error.hpp"
#include "comm/transport/gather_values.hpp"
#include "kernels/exec/host_memory.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/residual_add.hpp"

namespace winnow::comm {
namespace {

// In elements: few caches hold two such arrays.
constexpr std::size_t kPassCount = std::size_t{1} << 22;
// Bandwidth comes from the difference between two long messages, so that latency and the burst that
// a link passes at once cancel out.
constexpr std::size_t kShort = 8, kLong = std::size_t{64} << 10, kLonger = std::size_t{320} << 10;
constexpr double kUnknown = 0;  // not measured by this rank

/// One rank's measurements: seconds of an 8-byte message, and bytes per second.
struct Measured {
  double pass = kUnknown;
  double intra_alpha = kUnknown, intra_beta = kUnknown;
  double inter_alpha = kUnknown, inter_beta = kUnknown;
};

double median(std::span<double> values) {
  std::ranges::sort(values);
  return values.empty() ? kUnknown : values[values.size() / 2];
}

template <class Work>
double median_seconds(const Work& work) {
  std::array<double, 3> seconds;
  for (double& one : seconds) {
    const auto begin = Deadline::Clock::now();
    work();
    one = std::chrono::duration<double>(Deadline::Clock::now() - begin).count();
  }
  return median(seconds);
}

double measure_pass(const Exec& exec, const MemorySource* residuals) {
  kernels::PlaceArray<float> gradient(exec, kPassCount);
  kernels::PlaceArray<float> residual(exec, kPassCount, residuals);
  const double seconds = median_seconds([&] {
    kernels::residual_add(exec, residual.span(), gradient.span());
    kernels::wait(exec);
  });
  return 3 * sizeof(float) * static_cast<double>(kPassCount) / seconds;
}

/// Ranks that each send to the next and receive from the previous one, all at once.
class Circle {
 public:
  /// `members` includes this rank.
  Circle(Transport& world, const Exec& exec, Deadline deadline, std::span<const int> members)
      : world_(world), exec_(exec), deadline_(deadline), out_(exec, kLonger), in_(exec, kLonger) {
    const auto self =
        static_cast<std::size_t>(std::ranges::find(members, world.rank()) - members.begin());
    next_ = members[(self + 1) % members.size()];
    previous_ = members[(self + members.size() - 1) % members.size()];
  }

  void measure(double& alpha, double& beta) {
    turn(kShort);  // the first message may set up a connection
    alpha = median_seconds([&] { turn(kShort); });
    const double with_long = median_seconds([&] { turn(kLong); });
    const double with_longer = median_seconds([&] { turn(kLonger); });
    const double more = with_longer - with_long;
    // Noise may hide the difference on fast links.
    beta = more > with_longer / 4 ? static_cast<double>(kLonger - kLong) / more
                                  : static_cast<double>(kLonger) / with_longer;
  }

 private:
  void turn(std::size_t bytes) {
    std::uint64_t received = 0;
    abort_on_error(world_, [&] {
      world_.send(out_.span().first(bytes), next_);
      world_.recv(in_.span().first(bytes), previous_, &received);
      world_.wait(world_.start(exec_), deadline_);
    });
  }

  Transport& world_;
  const Exec& exec_;
  Deadline deadline_;
  kernels::PlaceArray<std::byte> out_, in_;
  int next_ = 0, previous_ = 0;
};

}  // namespace

LinkModel probe_links(const Probed& buckets, const Probed& control, const Topology& topology,
                      Deadline deadline) {
  const auto& [world, exec, residuals] = buckets;
  Measured mine;
  mine.pass = measure_pass(exec, residuals);
  const int node = topology.node_of(world.rank());
  const auto locals = topology.members(node);
  if (locals.size() > 1) {
    Circle(world, exec, deadline, locals).measure(mine.intra_alpha, mine.intra_beta);
  }
  if (topology.nodes() > 1 && locals.front() == world.rank()) {
    std::vector<int> firsts;
    for (int n = 0; n < topology.nodes(); ++n) firsts.push_back(topology.members(n).front());
    Circle(world, exec, deadline, firsts).measure(mine.inter_alpha, mine.inter_beta);
  }

  const std::vector<Measured> all = gather_values(control.world, mine, deadline, control.exec);
  LinkModel model;
  const auto settle = [&](double Measured::*what, double& value) {
    std::vector<double> known;
    for (const Measured& one : all) {
      if (one.*what > 0 && one.*what < std::numeric_limits<double>::infinity()) {
        known.push_back(one.*what);
      }
    }
    if (!known.empty()) value = median(known);
  };
  settle(&Measured::pass, model.pass);
  settle(&Measured::intra_alpha, model.intra.alpha);
  settle(&Measured::intra_beta, model.intra.beta);
  settle(&Measured::inter_alpha, model.inter.alpha);
  settle(&Measured::inter_beta, model.inter.beta);
  return model;
}

}  // namespace winnow::comm
