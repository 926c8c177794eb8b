// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/call_status.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>
#include <winnow/error.hpp>

#include "tests/harness/kernel_place.hpp"

namespace winnow::tests {
namespace {

using kernels::CallReport;
using kernels::CallStatus;

/// Memory that the host reads and a place writes.
const MemorySource& shared_by(const Exec& exec) {
  return exec.place == Place::cuda ? kernels::pinned_memory() : kernels::memory_of(exec.place);
}

/// The status of calls in a place, and a report.
struct Calls {
  explicit Calls(const Exec& where)
      : exec(where),
        status(where, 1),
        report(where, 1, &shared_by(where)),
        counts(where, 2, &shared_by(where)) {}

  void say(const CallStatus& said) { status.upload({&said, 1}); }
  void end(std::uint64_t number, std::size_t bucket, bool counts_clipped = true) {
    kernels::end_call(exec, {status.data(), number, report.span().data(), &counts.span()[bucket],
                             counts_clipped});
  }

  Exec exec;
  OnPlace<CallStatus> status;
  kernels::PlaceArray<CallReport> report;
  kernels::PlaceArray<kernels::CallCounts> counts;
};

/// Kernels work only if the status lets them.
TEST(CallStatus, DecidesWhatIsDone) {
  for_each_body([](const Exec& exec) {
    Calls calls(exec);
    const auto run = [&] {
      OnPlace<float> there(exec, 5);
      const std::span<float> elements = there.span();
      Exec conditional = exec;
      conditional.condition = kernels::sound(*calls.status.data());
      kernels::fill(conditional, elements.first(1), 1);
      conditional.condition = kernels::refused(*calls.status.data());
      kernels::fill(conditional, elements.subspan(1, 1), 2);
      conditional.condition.any = false;
      kernels::fill(conditional, elements.subspan(2, 1), 3);
      kernels::copy(conditional, elements.subspan(3, 1), elements.subspan(2, 1));
      kernels::fill(exec, elements.subspan(4, 1), 4);
      return there.download();
    };
    EXPECT_EQ(run(), (std::vector<float>{1, 0, 3, 3, 4}));
    calls.say({.not_finite = 1});
    EXPECT_EQ(run(), (std::vector<float>{1, 2, 0, 0, 4}));
    calls.end(0, 0);
    calls.say({.spoiled = 1});
    EXPECT_EQ(run(), (std::vector<float>{0, 2, 0, 0, 4}));
  });
}

TEST(CallStatus, ACallEndsInAReport) {
  for_each_body([](const Exec& exec) {
    Calls calls(exec);
    const CallReport& report = calls.report.span().front();
    calls.end(0, 0);
    kernels::wait(exec);
    EXPECT_EQ(report.done, 1U);
    EXPECT_EQ(report.unsound_call, 0U);
    EXPECT_EQ(report.next, 1U);
    constexpr std::uint64_t kCall = std::uint64_t{3} << 40;  // the status's own number
    calls.say({.call = kCall, .spoiled = 1, .unsound = ~1U});
    calls.end(1, 1);
    EXPECT_EQ(calls.status.download().front().call, kCall + 1);
    calls.say({.call = kCall + 1, .spoiled = 1, .unsound = ~0U});
    calls.end(2, 1);
    calls.say({.call = kCall + 2, .not_finite = 1});
    calls.end(3, 0);
    calls.end(4, 0);
    kernels::wait(exec);
    EXPECT_EQ(report.done, 5U);
    EXPECT_EQ(report.unsound_call, 2U);
    EXPECT_EQ(report.unsound, 2U);
    EXPECT_EQ(calls.counts.span()[0].refused, 1U);
    EXPECT_EQ(calls.counts.span()[1].refused, 2U);
    EXPECT_EQ(calls.counts.span()[1].clipped, 0U);
    const CallStatus left = calls.status.download().front();
    EXPECT_EQ(left.spoiled + left.not_finite + left.unsound, 0U);
    EXPECT_EQ(left.call, kCall + 4);
    EXPECT_EQ(report.next, kCall + 4);
    calls.end(2, 0);  // as a graph of an earlier call does
    kernels::wait(exec);
    EXPECT_EQ(report.done, 5U);
    EXPECT_EQ(report.next, kCall + 5);
  });
}

TEST(CallStatus, ACallThatClipsIsCountedOnce) {
  for_each_body([](const Exec& exec) {
    Calls calls(exec);
    calls.say({.too_large = 1});
    calls.end(0, 0);
    calls.end(1, 0);
    calls.say({.not_finite = 1, .too_large = 1});
    calls.end(2, 1);
    calls.say({.too_large = 1});
    calls.end(3, 1, false);  // as one that the host has counted
    kernels::wait(exec);
    EXPECT_EQ(calls.counts.span()[0].clipped, 1U);
    EXPECT_EQ(calls.counts.span()[0].refused, 0U);
    EXPECT_EQ(calls.counts.span()[1].clipped, 0U);
    EXPECT_EQ(calls.counts.span()[1].refused, 1U);
    EXPECT_EQ(calls.status.download().front().too_large, 0U);
  });
}

TEST(CallStatus, ACallEndsSomewhere) {
  EXPECT_THROW(kernels::end_call({}, {nullptr, 0, nullptr, nullptr}), UsageError);
}

}  // namespace
}  // namespace winnow::tests
