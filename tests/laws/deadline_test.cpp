// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Law 10: every wait of a call has the call's deadline, and the ring replaces a native collective,
// which would block for ever, if a deadline is set. The test reads deadlines instead of waiting for
// them, so no result depends on time.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/harness/forwarding_transport.hpp"
#include "tests/harness/ranks.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

/// Records the deadlines of its waits, and claims that its all_reduce is native.
class WatchedTransport final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  void wait(Ticket ticket, Deadline deadline) override {
    ++waits;
    latest = std::max(latest, deadline.at());
    ForwardingTransport::wait(ticket, deadline);
  }
  bool native_all_reduce() const override { return true; }
  void all_reduce(const Exec& exec, const Elements& elements, ReduceOp op,
                  Deadline deadline) override {
    ++native_calls;
    Transport::all_reduce(exec, elements, op, deadline);
  }

  int waits = 0, native_calls = 0;
  Deadline::Clock::time_point latest{};
};

void expect_bounded_by(double seconds, const Options& options, int native_calls) {
  const std::vector<Parameter> parameters = {{1, 5000}, {2, 300, 1}, {3, 2000}};
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& inner) {
      if (inner->size() == 1) return;  // nothing to wait for
      const auto transport = std::make_shared<WatchedTransport>(inner);
      AllReducer reducer(transport, options);
      TestBucket bucket(parameters);
      for (int step = 0; step < 2; ++step) {  // the first meets the bucket
        transport->waits = transport->native_calls = 0;
        transport->latest = {};
        bucket.fill(Kind::normal, inner->rank(), step);
        reducer.all_reduce(bucket.segments());
        EXPECT_GT(transport->waits, 0);
        EXPECT_LE(transport->latest, Deadline::after(std::chrono::duration<double>(seconds)).at());
        EXPECT_EQ(transport->native_calls, native_calls);
      }
    });
  }
}

TEST(Deadline, OfTheOptionsBoundsMessagesAndRing) {
  expect_bounded_by(
      60, {.compressor = "topk:0.02", .schedule = "gather", .min_bytes = 0, .deadline = 60}, 0);
  expect_bounded_by(
      60, {.compressor = "int8", .schedule = "balanced", .min_bytes = 0, .deadline = 60}, 0);
  expect_bounded_by(
      60, {.compressor = "topk:0.02", .schedule = "shared", .min_bytes = 0, .deadline = 60}, 0);
  expect_bounded_by(60, {.compressor = "none", .deadline = 60}, 0);
}

TEST(Deadline, IsTenMinutesWhereNoneIsAskedFor) {
  expect_bounded_by(600, {.compressor = "topk:0.02", .schedule = "gather", .min_bytes = 0}, 1);
  expect_bounded_by(600, {.compressor = "none"}, 1);
}

}  // namespace
}  // namespace winnow::tests
