// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Law 5: nothing is lost when a call fails. A transport that fails at a chosen start
// shows it.
#include <gtest/gtest.h>

#include "compress/compressor.hpp"
#include "tests/forwarding_transport.hpp"
#include "tests/laws/reference.hpp"
#include "tests/ranks.hpp"

namespace winnow::tests {
namespace {

/// Forwards to another transport until its start number `fail_at`, which throws and sends nothing,
/// so that no rank can finish.
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
                         int fail_at, bool dense_is_lost) {
  // What a lossy coding missed and what it sent are added up again, with a rounding each.
  const bool exact = compress::make_compressor(options.compressor)->codings().exact();
  const float rounding = exact ? 0 : 1e-6F;
  for (const int ranks : rank_counts()) {
    if (ranks == 1) continue;  // nothing travels
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& inner) {
      if (inner->size() == 1) return;
      // The failing transport is destroyed before its buffers' owner only at the end of the body.
      const auto transport =
          std::make_shared<FailingTransport>(inner, inner->rank() == 0 ? fail_at : -1);
      AllReducer reducer(transport, options);
      TestBucket bucket(parameters);
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
      EXPECT_THROW(reducer.all_reduce(bucket.segments()), CommError);
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
      // What follows fails at once and touches nothing.
      bucket.fill(Kind::normal, inner->rank(), 2);
      const auto untouched = bucket.values();
      EXPECT_THROW(reducer.all_reduce(bucket.segments()), CommError);
      EXPECT_EQ(bucket.values(), untouched);
    });
  }
}

const std::vector<Parameter> kMixed = {{1, 5000}, {2, 300, 1}, {3, 2000}};

// The exchange of compressed messages fails: exempt parameters have not begun.
TEST(Failure, InTheGather) {
  expect_nothing_lost(kMixed, {.compressor = "topk:0.02", .schedule = "gather", .min_bytes = 0}, 1,
                      false);
}

// Owners never get what they are to sum.
TEST(Failure, InTheFirstRoundOfBalanced) {
  expect_nothing_lost(
      kMixed, {.compressor = "topk:0.02", .schedule = "balanced", .decay = 0.5F, .min_bytes = 0}, 1,
      false);
}

// Owners have summed, and what they would leave to themselves must not stay.
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

// The message of the second part is never delivered: the first part's sum is not written either,
// and the third part is not begun.
TEST(Failure, InALaterPart) {
  expect_nothing_lost({{1, 3000}, {2, 3000}, {3, 3000}},
                      {.compressor = "topk:0.02",
                       .schedule = "gather",
                       .decay = 0.5F,
                       .min_bytes = 0,
                       .max_part = 3000},
                      2, false);
}

// Several dense tensors travel through scratch, so their gradients survive a failing ring.
TEST(Failure, InTheDenseRingOfScatteredTensors) {
  expect_nothing_lost({{1, 3000}, {2, 300}}, {.compressor = "none", .deadline = 60}, 1, false);
}

// Packed parts that have been summed are not written before the last one is.
TEST(Failure, InALaterDensePart) {
  expect_nothing_lost({{1, 300}, {2, 50}, {3, 300}, {4, 50}},
                      {.compressor = "none", .max_part = 350, .deadline = 60}, 2, false);
}

// One dense tensor is reduced in place: what is documented, and no more, is lost.
TEST(Failure, InTheDenseRingInPlace) {
  expect_nothing_lost({{1, 3000}}, {.compressor = "none", .deadline = 60}, 1, true);
}

}  // namespace
}  // namespace winnow::tests
