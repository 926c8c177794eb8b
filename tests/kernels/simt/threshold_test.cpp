// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Selection by a bound.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <span>
#include <string>
#include <vector>
#include <winnow/error.hpp>

#include "kernels/cuda/feedback_select.cuh"
#include "tests/harness/sanitized.hpp"
#include "tests/kernels/cases/threshold_cases.hpp"
#include "tests/model/in_a_child.hpp"
#include "tests/model/machine.hpp"
#include "tests/model/orders.hpp"
#include "tests/model/scratch.hpp"

namespace winnow::tests {
namespace {

using kernels::SelectResult;
using kernels::cuda::SelectMemory;
using kernels::cuda::SelectScratch;

constexpr std::size_t kBefore = 3;  // elements already in the list

/// A list of `room` places behind those that are taken.
struct List {
  std::vector<std::uint32_t> index;
  std::vector<float> value;
  std::uint64_t kept = kBefore;

  explicit List(std::size_t room) : index(kBefore + room, 77), value(kBefore + room, 77) {}

  /// Gives the list without its first elements, and checks that these are unchanged.
  void give(std::vector<std::uint32_t>& indices, std::vector<float>& values) const {
    ASSERT_GE(kept, kBefore);
    ASSERT_LE(kept, index.size());
    const auto from = static_cast<std::ptrdiff_t>(kBefore), to = static_cast<std::ptrdiff_t>(kept);
    const auto is_untouched = [](auto x) { return x == 77; };
    EXPECT_TRUE(std::all_of(index.begin(), index.begin() + from, is_untouched));
    EXPECT_TRUE(std::all_of(value.begin(), value.begin() + from, is_untouched));
    EXPECT_TRUE(std::all_of(index.begin() + to, index.end(), is_untouched));
    EXPECT_TRUE(std::all_of(value.begin() + to, value.end(), is_untouched));
    indices = {index.begin() + from, index.begin() + to};
    values = {value.begin() + from, value.begin() + to};
  }
};

/// Counts kernels and the barriers of one watched kernel; it may leave out one barrier.
struct Watch {
  int kernels = 0;   // launched
  int barriers = 0;  // that a thread met in kernel number `watched`
  int watched = -1;
  int skipped = -1;  // barrier of that kernel

  template <class Kernel>
  void launch(Machine& machine, unsigned blocks, const Kernel& kernel) {
    const bool is_watched = kernels++ == watched;
    machine.skip_barrier(is_watched ? skipped : -1);
    machine.launch(blocks, kernel);
    if (is_watched) barriers = std::max(barriers, machine.barriers());
  }
};

struct OnModel {
  Machine& machine;
  Watch watch = {};

  ThresholdOutcome operator()(const ThresholdJob& job) {
    ThresholdOutcome out(job);
    List list(job.count());
    watch.kernels = 0;
    for (std::size_t p = 0; p < job.parameters(); ++p) {
      const SelectScratch layout(job.gradient[p].size(), 0);
      Scratch scratch(layout.bytes);
      std::memset(scratch.span().data(), 0, layout.zeroed);
      const auto task =
          kernels::cuda::make_threshold_task({.spans = out.spans(job, p),
                                              .base = job.base[p],
                                              .bound = job.bound,
                                              .index = list.index,
                                              .value = list.value,
                                              .kept = &list.kept,
                                              .result = &out.result[p]},
                                             SelectMemory::in(scratch.span().data(), layout));
      kernels::cuda::for_each_threshold_kernel(
          task, kernels::cuda::SelectShape::of(task),
          [&](const auto& kernel) { watch.launch(machine, 2, kernel); });
    }
    list.give(out.index, out.value);
    out.trim();
    return out;
  }
};

class ThresholdOnModel : public testing::TestWithParam<Input> {};
INSTANTIATE_TEST_SUITE_P(Inputs, ThresholdOnModel, testing::ValuesIn(kInputs));

TEST_P(ThresholdOnModel, EqualsReferenceInAnyOrder) {
  std::deque<Machine> machines;
  std::size_t turn = 0;
  for (const SimtOrder& order : simt_orders()) machines.emplace_back(order);
  for (const std::size_t count : {0U, 1U, 65U, 4097U, 9001U}) {
    for_each_threshold(GetParam(), count, kThresholds,
                       [&](const ThresholdJob& job, const ThresholdOutcome& expected) {
                         expect_equal(OnModel{machines[turn++ % machines.size()]}(job), expected);
                       });
  }
}

/// An element that finds no room in the list stays where it is.
TEST(ThresholdModel, AFullListLosesNothing) {
  for (const SimtOrder& order : simt_orders()) {
    Machine machine(order);
    constexpr std::size_t kCount = 5000, kTaken = 4900;
    std::vector<float> gradient(kCount, 2), residual(kCount), value(kCount);
    std::vector<std::uint32_t> index(kCount);
    std::uint64_t kept = kTaken;
    SelectResult result{};
    const SelectScratch layout(kCount, 0);
    Scratch scratch(layout.bytes);
    std::memset(scratch.span().data(), 0, layout.zeroed);
    const auto task =
        kernels::cuda::make_threshold_task({.spans = {gradient, residual},
                                            .bound = 1,
                                            .index = index,
                                            .value = value,
                                            .kept = &kept,
                                            .result = &result},
                                           SelectMemory::in(scratch.span().data(), layout));
    kernels::cuda::for_each_threshold_kernel(
        task, kernels::cuda::SelectShape::of(task),
        [&](const auto& kernel) { machine.launch(2, kernel); });
    EXPECT_EQ(kept, kCount);
    EXPECT_EQ(result.candidates, kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(residual[i], i < kCount - kTaken ? 0 : 2) << i;
    }
    for (std::size_t j = kTaken; j < kCount; ++j) EXPECT_EQ(index[j], j - kTaken);
  }
}

bool equal(const ThresholdOutcome& got, const ThresholdOutcome& expected) {
  for (std::size_t p = 0; p < expected.result.size(); ++p) {
    const SelectResult &a = got.result[p], &b = expected.result[p];
    if (!same_bits(got.gradient[p], expected.gradient[p]) ||
        !same_bits(got.residual[p], expected.residual[p]) ||
        got.own_index[p] != expected.own_index[p] ||
        !same_bits(got.own_value[p], expected.own_value[p]) || a.finite != b.finite ||
        a.candidates != b.candidates || a.listed != b.listed) {
      return false;
    }
  }
  return got.index == expected.index && same_bits(got.value, expected.value);
}

/// Without any one of its barriers a pass goes wrong, or stops, in some order.
TEST(ThresholdModel, EveryBarrierIsNeeded) {
  if (kSanitized) GTEST_SKIP() << "hundreds of processes, each slow to start under a sanitizer";
  const ThresholdJob jobs[] = {{Input::not_finite, 9000, 0, 0.75F},
                               {Input::not_finite, 9000, 2, 0.75F}};
  for (const ThresholdJob& job : jobs) {
    const ThresholdOutcome expected = expected_of(job);
    const auto works = [&](const SimtOrder& order, int skipped, int* barriers = nullptr) {
      Machine machine(order);
      OnModel run{machine};
      run.watch.watched = 0;
      run.watch.skipped = skipped;
      const ThresholdOutcome got = run(job);
      if (barriers != nullptr) *barriers = run.watch.barriers;
      return equal(got, expected);
    };
    int barriers = 0;
    EXPECT_TRUE(works({}, -1, &barriers));
    // The last barrier is the one of StreamPass that feedback_select_test leaves out, too.
    for (int skipped = 0; skipped < barriers - 1; ++skipped) {
      const auto orders = simt_orders(40);
      EXPECT_TRUE(std::ranges::any_of(orders,
                                      [&](const SimtOrder& order) {
                                        return !works_in_a_child(
                                            [&] { return works(order, skipped); });
                                      }))
          << job.owners << " owners, barrier " << skipped << " of " << barriers;
    }
  }
}

}  // namespace
}  // namespace winnow::tests
