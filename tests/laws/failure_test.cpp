// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Law 5: nothing is lost when a call fails, shown by a transport that fails at a chosen start.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "compress/compressor.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/half.hpp"
#include "tests/harness/forwarding_transport.hpp"
#include "tests/harness/ranks.hpp"
#include "tests/harness/reducer.hpp"
#include "tests/laws/kept.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

/// Forwards to another transport until start number `fail_at`, which throws and sends nothing, so
/// that no rank can finish.
class FailingTransport final : public ForwardingTransport {
 public:
  FailingTransport(std::shared_ptr<Transport> inner, int fail_at)
      : ForwardingTransport(std::move(inner)), fail_at_(fail_at) {}
  Ticket start(const Exec& exec) override {
    if (armed && ++starts_ == fail_at_) throw CommError("the wire was cut");
    return ForwardingTransport::start(exec);
  }

  bool armed = false;

 private:
  int fail_at_;
  int starts_ = 0;
};

void expect_nothing_lost(const std::vector<Parameter>& parameters, const Options& options,
                         int fail_at, bool dense_is_lost, bool others_may_end = false) {
  // Put-back adds what a lossy coding missed to what it sent; each addition rounds once.
  const bool exact = compress::make_compressor(options.compressor)->codings().exact();
  const float rounding = exact ? 0 : 1e-6F;
  Kept<TestBucket> buckets;
  run_worlds(options.schedule, [&](const std::shared_ptr<Transport>& inner) {
    if (inner->size() == 1) return;  // nothing travels
    const auto transport =
        std::make_shared<FailingTransport>(inner, inner->rank() == 0 ? fail_at : -1);
    Reducer reducer(transport, options);
    // With one rail two levels are the schedule between nodes itself, with other starts.
    if (options.schedule.starts_with("two_level") && reducer.topology().rails() == 1) return;
    TestBucket& bucket = buckets.make(parameters);
    bucket.fill(Kind::normal, inner->rank(), 0);
    reducer.all_reduce(bucket.segments());
    std::vector<std::vector<float>> before;
    for (const Parameter& p : parameters) {
      const auto residual = reducer.residual(p.id);
      before.emplace_back(residual.begin(), residual.end());
      before.back().resize(p.count);
    }
    bucket.fill(Kind::normal, inner->rank(), 1);
    const auto gradient = bucket.values();
    tell_rank_0(*transport);
    transport->armed = true;
    try {
      reducer.all_reduce(bucket.segments());
      // A failure within a node after the sums are known does not concern other nodes.
      EXPECT_TRUE(others_may_end && reducer.topology().node_of(inner->rank()) != 0);
      return;
    } catch (const CommError&) {
    }
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      for (const float value : bucket.values()[p]) EXPECT_EQ(value, 0.0F);
      if (dense_is_lost) continue;
      const auto residual = reducer.residual(parameters[p].id);
      EXPECT_EQ(residual.size(), parameters[p].count);
      if (residual.size() != parameters[p].count) continue;
      for (std::size_t i = 0; i < residual.size(); ++i) {
        const float carried = options.decay * before[p][i];
        EXPECT_NEAR(residual[i], gradient[p][i] + carried, rounding) << p << " " << i;
      }
    }
    // Later calls fail at once and touch nothing.
    bucket.fill(Kind::normal, inner->rank(), 2);
    const auto untouched = bucket.values();
    EXPECT_THROW(reducer.all_reduce(bucket.segments()), CommError);
    EXPECT_EQ(bucket.values(), untouched);
  });
}

const std::vector<Parameter> kMixed = {{1, 5000}, {2, 300, 1}, {3, 2000}};

// The ranks cannot compare their plans of a new bucket, so nothing of it travels.
TEST(Failure, AtTheFirstCallOfABucket) {
  for (const char* schedule : {"gather", "balanced", "doubling", "shared", "two_level", "auto"}) {
    for (const char* compressor : {"topk:0.02", "int8", "none"}) {
      SCOPED_TRACE(testing::Message() << compressor << "@" << schedule);
      Kept<TestBucket> buckets;
      run_worlds(schedule, [&](const std::shared_ptr<Transport>& inner) {
        if (inner->size() == 1) return;
        const auto transport =
            std::make_shared<FailingTransport>(inner, inner->rank() == 0 ? 1 : -1);
        Reducer reducer(
            transport,
            {.compressor = compressor, .schedule = schedule, .links = kGivenLinks, .min_bytes = 0});
        TestBucket& bucket = buckets.make(kMixed);
        bucket.fill(Kind::normal, inner->rank(), 0);
        const auto gradient = bucket.values();
        tell_rank_0(*transport);
        transport->armed = true;
        EXPECT_THROW(reducer.all_reduce(bucket.segments()), CommError);
        for (std::size_t p = 0; p < kMixed.size(); ++p) {
          for (const float value : bucket.values()[p]) EXPECT_EQ(value, 0.0F);
          EXPECT_TRUE(same_bits(reducer.residual(kMixed[p].id), gradient[p])) << "parameter " << p;
        }
        EXPECT_THROW(reducer.all_reduce(bucket.segments()), CommError);
      });
    }
  }
}

// The exchange of compressed messages fails before exempt parameters begin.
TEST(Failure, InTheGather) {
  expect_nothing_lost(kMixed, {.compressor = "topk:0.02", .schedule = "gather", .min_bytes = 0}, 1,
                      false);
}

TEST(Failure, InTheGatherOfAThreshold) {
  for (const char* compressor : {"threshold", "threshold:2", "threshold:1,int8"}) {
    expect_nothing_lost(
        kMixed, {.compressor = compressor, .schedule = "gather", .decay = 0.5F, .min_bytes = 0}, 1,
        false);
  }
}

TEST(Failure, InTheGatherOfDrawnPositions) {
  for (const char* compressor : {"randomk:0.02", "randomk:0.3,int8"}) {
    expect_nothing_lost(
        kMixed, {.compressor = compressor, .schedule = "gather", .decay = 0.5F, .min_bytes = 0}, 1,
        false);
  }
}

// Owners never get the messages that they sum.
TEST(Failure, InTheFirstRoundOfBalanced) {
  expect_nothing_lost(
      kMixed, {.compressor = "topk:0.02", .schedule = "balanced", .decay = 0.5F, .min_bytes = 0}, 1,
      false);
}

// Owners have summed; what they would keep for themselves must not stay.
TEST(Failure, InTheSecondRoundOfBalanced) {
  expect_nothing_lost(kMixed, {.compressor = "topk:0.02", .schedule = "balanced", .min_bytes = 0},
                      2, false);
}

TEST(Failure, InTheSecondRoundOfBalancedCodings) {
  for (const char* compressor : {"topk:0.02,int8", "int4", "bf16:stochastic", "sign"}) {
    expect_nothing_lost(kMixed, {.compressor = compressor, .schedule = "balanced", .min_bytes = 0},
                        2, false);
  }
}

TEST(Failure, InTheSecondRoundOfBalancedThreshold) {
  for (const char* compressor : {"threshold:1,int8", "threshold"}) {
    expect_nothing_lost(kMixed, {.compressor = compressor, .schedule = "balanced", .min_bytes = 0},
                        2, false);
  }
}

TEST(Failure, InEitherRoundOfBalancedDrawnPositions) {
  for (const char* compressor : {"randomk:0.02", "randomk:0.3,int8"}) {
    for (const int round : {1, 2}) {
      expect_nothing_lost(
          kMixed, {.compressor = compressor, .schedule = "balanced", .min_bytes = 0}, round, false);
    }
  }
}

// No rank has received rank 0's gradient.
TEST(Failure, InTheFirstRoundOfDoubling) {
  for (const char* compressor :
       {"topk:0.02", "topk:0.4,int8", "int4", "threshold:2", "randomk:0.1,int4"}) {
    expect_nothing_lost(
        kMixed, {.compressor = compressor, .schedule = "doubling", .decay = 0.5F, .min_bytes = 0},
        1, false);
  }
}

// The call fails before supports are known; after values are taken but not sent; or after sums are
// known, when their coding errors must not stay.
TEST(Failure, AtEachStartOfShared) {
  for (const char* compressor : {"topk:0.02", "topk:0.02,int8", "int4", "none"}) {
    for (int fail_at = 1; fail_at <= 3; ++fail_at) {
      SCOPED_TRACE(std::string(compressor) + " " + std::to_string(fail_at));
      expect_nothing_lost(
          kMixed, {.compressor = compressor, .schedule = "shared", .decay = 0.5F, .min_bytes = 0},
          fail_at, false);
    }
  }
}

// A message of a later part is never delivered, with others under way: the sums of finished parts
// are taken back, and parts not begun stay whole.
void expect_nothing_lost_of_later_parts(const char* schedule, int starts) {
  const std::vector<Parameter> parameters = {{1, 3000}, {2, 3000}, {3, 3000}, {4, 3000}, {5, 3000}};
  for (int fail_at = 2; fail_at <= starts; ++fail_at) {
    expect_nothing_lost(parameters,
                        {.compressor = "topk:0.02",
                         .schedule = schedule,
                         .decay = 0.5F,
                         .min_bytes = 0,
                         .max_part = 3000},
                        fail_at, false);
  }
}
TEST(Failure, InALaterPartOfGather) {
  expect_nothing_lost_of_later_parts("gather", 5);
}
TEST(Failure, InALaterPartOfDoubling) {
  expect_nothing_lost_of_later_parts("doubling", 5);
}
TEST(Failure, InALaterPartOfBalanced) {
  expect_nothing_lost_of_later_parts("balanced", 10);
}
TEST(Failure, InALaterPartOfShared) {
  expect_nothing_lost_of_later_parts("shared", 15);
}

// The call fails before anything has left a rank, or between nodes that have not received rank 0's
// gradient.
TEST(Failure, InTwoLevelsOfDoubling) {
  for (const int fail_at : {1, 2}) {
    expect_nothing_lost(kMixed,
                        {.compressor = "topk:0.02",
                         .schedule = "two_level:doubling",
                         .decay = 0.5F,
                         .min_bytes = 0},
                        fail_at, false);
  }
}

// The call fails before anything has left a rank; between nodes, after residuals have changed; or
// when the sums go to each node's ranks, when other nodes' ranks may have theirs already.
void expect_nothing_lost_in_two_levels(const char* schedule, int starts) {
  for (const char* compressor : {"topk:0.02", "int8"}) {
    const Options options{
        .compressor = compressor, .schedule = schedule, .decay = 0.5F, .min_bytes = 0};
    for (int fail_at = 1; fail_at < starts; ++fail_at) {
      SCOPED_TRACE(options.to_string() + " " + std::to_string(fail_at));
      expect_nothing_lost(kMixed, options, fail_at, false);
    }
    expect_nothing_lost({{1, 5000}, {3, 2000}}, options, starts, false, true);
  }
}
TEST(Failure, AtEachStartOfTwoLevels) {
  expect_nothing_lost_in_two_levels("two_level:gather", 3);
}
TEST(Failure, AtEachStartOfTwoLevelsOfBalanced) {
  expect_nothing_lost_in_two_levels("two_level:balanced", 4);
}
TEST(Failure, AtEachStartOfTwoLevelsOfShared) {
  expect_nothing_lost_in_two_levels("two_level:shared", 5);
}

TEST(Failure, InALaterPartOfTwoLevels) {
  const std::vector<Parameter> parameters = {{1, 3000}, {2, 3000}, {3, 3000}, {4, 3000}};
  for (const char* schedule : {"two_level:gather", "two_level:balanced", "two_level:shared"}) {
    const Options options{
        .compressor = "topk:0.02", .schedule = schedule, .min_bytes = 0, .max_part = 3000};
    for (int fail_at = 2; fail_at <= 12; fail_at += 2) {
      SCOPED_TRACE(options.to_string() + " " + std::to_string(fail_at));
      expect_nothing_lost(parameters, options, fail_at, false, fail_at > 8);
    }
  }
}

// Several dense tensors travel through scratch, so their gradients survive a failing ring.
TEST(Failure, InTheDenseRingOfScatteredTensors) {
  expect_nothing_lost({{1, 3000}, {2, 300}}, {.compressor = "none", .deadline = 60}, 1, false);
}

// Packed parts that have been summed are not written before the last one is summed.
TEST(Failure, InALaterDensePart) {
  expect_nothing_lost({{1, 300}, {2, 50}, {3, 300}, {4, 50}},
                      {.compressor = "none", .max_part = 350, .deadline = 60}, 2, false);
}

// One dense tensor is reduced in place: only the documented loss occurs.
TEST(Failure, InTheDenseRingInPlace) {
  expect_nothing_lost({{1, 3000}}, {.compressor = "none", .deadline = 60}, 1, true);
}

/// Calls `reducer` out of place, the second time over a transport that fails at start `fail_at`.
void expect_input_kept(const Options& options, int fail_at, ElementType type, ReduceOp op) {
  Kept<std::vector<float>> outputs;
  for (const int ranks : rank_counts()) {
    if (ranks == 1) continue;
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& inner) {
      if (inner->size() == 1) return;
      const auto transport =
          std::make_shared<FailingTransport>(inner, inner->rank() == 0 ? fail_at : -1);
      Reducer reducer(transport, options);
      std::vector<float> gradient = make_gradient(Kind::normal, 3001, inner->rank(), 0, 1);
      std::vector<std::uint16_t> halves(gradient.size()), halves_out(gradient.size(), 1);
      std::vector<float>& out = outputs.make(gradient.size(), 1.0F);
      const bool half = type == ElementType::bf16;
      if (half) {
        kernels::narrow({}, type, gradient, halves);
        kernels::widen({}, type, halves, gradient);
      }
      const auto untouched = gradient;
      const auto halves_untouched = halves;
      const auto call = [&] {
        if (half) {
          reducer.all_reduce(ConstElements(halves.data(), halves.size(), type),
                             Elements(halves_out.data(), halves_out.size(), type), 1, op);
        } else {
          reducer.all_reduce(gradient, out, 1, op);
        }
      };
      call();
      const std::vector<float> before = reducer.residual(1);
      tell_rank_0(*transport);
      transport->armed = true;
      EXPECT_THROW(call(), CommError);
      for (const float value : out) EXPECT_EQ(value, half ? 1.0F : 0.0F);
      for (const std::uint16_t value : halves_out) EXPECT_EQ(value, half ? 0 : 1);
      EXPECT_EQ(gradient, untouched);
      EXPECT_EQ(halves, halves_untouched);
      const auto residual = reducer.residual(1);
      if (op == ReduceOp::maximum) {
        EXPECT_TRUE(same_bits(residual, before));
        return;
      }
      EXPECT_EQ(residual.size(), gradient.size());
      std::vector<float> second(gradient.size());
      if (options.precondition != "none") {  // twice the same gradient
        for (const float correction : {2.0F, 4 / 3.0F}) {
          gradient = untouched;
          kernels::divide_by_moment(
              {}, gradient, second,
              {.decay = 0.5F, .weight = 0.5F, .correction = correction, .floor = 1e-8F});
        }
      }
      for (std::size_t i = 0; i < residual.size(); ++i) {
        EXPECT_EQ(residual[i], gradient[i] + (before.empty() ? 0.0F : before[i])) << i;
      }
    });
  }
}

// If a dense collective works in place on copied gradients, they are not lost.
TEST(Failure, LeavesTheInputAndPutsItBack) {
  for (const ElementType type : {ElementType::float32, ElementType::bf16}) {
    for (const char* schedule : {"gather", "balanced"}) {
      expect_input_kept({.compressor = "topk:0.02", .schedule = schedule, .min_bytes = 0}, 1, type,
                        ReduceOp::average);
    }
    // The ring has begun to sum.
    expect_input_kept({.compressor = "none", .deadline = 60}, 2, type, ReduceOp::sum);
    for (const char* compressor : {"topk:0.02", "none"}) {
      expect_input_kept({.compressor = compressor,
                         .schedule = compressor == std::string("none") ? "dense" : "gather",
                         .precondition = "second_moment:0.5",
                         .min_bytes = 0,
                         .deadline = 60},
                        compressor == std::string("none") ? 2 : 1, type, ReduceOp::sum);
    }
  }
}

TEST(Failure, OfAPlainCallLeavesInputAndResidual) {
  for (const ElementType type : {ElementType::float32, ElementType::bf16}) {
    expect_input_kept({.links = kGivenLinks, .deadline = 60}, 2, type, ReduceOp::maximum);
  }
}

}  // namespace
}  // namespace winnow::tests
