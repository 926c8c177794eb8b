// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// The laws for AllReducer::reduce_scatter.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/half.hpp"
#include "tests/harness/forwarding_transport.hpp"
#include "tests/harness/ranks.hpp"
#include "tests/harness/reducer.hpp"
#include "tests/laws/kept.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

constexpr std::uint64_t kId = 7;

/// One rank's input: a shard for each rank.
std::vector<float> make_input(std::uint64_t shard, int ranks, int rank, int step) {
  return make_gradient(Kind::heavy_tailed, shard * static_cast<std::uint64_t>(ranks), rank, step,
                       kId);
}

/// All ranks of topk in plain loops.
class Model {
 public:
  Model(int ranks, std::uint64_t shard, double density)
      : ranks_(static_cast<std::size_t>(ranks)),
        shard_(shard),
        k_(std::max<std::size_t>(shard > 0 ? 1 : 0, static_cast<std::size_t>(std::ceil(
                                                        density * static_cast<double>(shard))))),
        residuals_(ranks_, std::vector<float>(ranks_ * shard)) {}

  /// Returns the sums, of all shards.
  std::vector<float> step(const std::vector<std::vector<float>>& inputs) {
    std::vector<float> sums(ranks_ * shard_);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      std::vector<float>& acc = residuals_[rank];
      for (std::size_t i = 0; i < acc.size(); ++i) acc[i] = inputs[rank][i] + acc[i];
      for (std::size_t owner = 0; owner < ranks_; ++owner) {
        for (const std::size_t i : chosen(acc, owner, owner == rank ? shard_ : k_)) {
          sums[i] += acc[i];
          acc[i] = 0;
        }
      }
    }
    return sums;
  }
  const std::vector<float>& residual(int rank) const {
    return residuals_[static_cast<std::size_t>(rank)];
  }

 private:
  /// The largest of an owner's shard; ties go to the lowest.
  std::vector<std::size_t> chosen(const std::vector<float>& acc, std::size_t owner,
                                  std::size_t k) const {
    std::vector<std::size_t> all(shard_);
    std::iota(all.begin(), all.end(), owner * shard_);
    std::ranges::stable_sort(
        all, [&](std::size_t a, std::size_t b) { return std::abs(acc[a]) > std::abs(acc[b]); });
    all.resize(k);
    return all;
  }

  std::size_t ranks_, shard_, k_;
  std::vector<std::vector<float>> residuals_;
};

TEST(Scatter, EqualsPlainLoops) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, 2, [&](std::span<std::shared_ptr<Transport>> transports) {
      const int rank = transports[0]->rank(), size = transports[0]->size();
      const Options one{
          .compressor = "topk:0.05", .op = ReduceOp::sum, .min_bytes = 0, .threads = 1};
      Options several = one;
      several.threads = 3;
      Reducer reducer(transports[0], one), threaded(transports[1], several);
      std::uint64_t id = 0;
      for (const std::uint64_t shard : {0U, 1U, 63U, 1000U, 9001U}) {
        ++id;
        Model model(size, shard, 0.05);
        for (int step = 0; step < 3; ++step) {
          std::vector<std::vector<float>> inputs;
          for (int r = 0; r < size; ++r) inputs.push_back(make_input(shard, size, r, step));
          const std::vector<float> sums = model.step(inputs);
          const auto own = std::span(sums).subspan(static_cast<std::size_t>(rank) * shard, shard);
          std::vector<float> output(shard, 5), again(shard, 6);
          const std::vector<float>& input = inputs[static_cast<std::size_t>(rank)];
          reducer.reduce_scatter(input, output, id);
          threaded.reduce_scatter(input, again, id);
          EXPECT_TRUE(same_bits(output, own)) << shard << " elements, step " << step;
          EXPECT_TRUE(same_bits(again, own)) << shard << " elements, step " << step;
          if (shard == 0) continue;
          // -0 in the plain loops' zeros and ours may differ in sign only where nothing is left.
          EXPECT_EQ(reducer.residual(id), model.residual(rank)) << shard << " elements";
          EXPECT_TRUE(same_bits(reducer.residual(id), threaded.residual(id)));
          EXPECT_EQ(reducer.last().schedule, "scatter");
        }
      }
    });
  }
}

struct Case {
  const char* compressor;
  ElementType type = ElementType::float32;
  float factor = 1;  // of gradients
};

/// One call for elements of any gradient type. `values` is rounded to the type.
std::vector<float> reduce_scatter(Reducer& reducer, ElementType type, std::vector<float>& values,
                                  std::size_t shard, std::optional<ReduceOp> op = {}) {
  std::vector<float> output(shard, 8);
  if (type == ElementType::float32) {
    reducer.reduce_scatter(values, output, kId, op);
    return output;
  }
  std::vector<std::uint16_t> in(values.size()), out(shard, 8);
  kernels::narrow({}, type, values, in);
  kernels::widen({}, type, in, values);
  reducer.reduce_scatter({in.data(), in.size(), type}, {out.data(), out.size(), type}, kId, op);
  kernels::widen({}, type, out, output);
  return output;
}

// Conservation: what ranks were given is applied or in a residual.
TEST(Scatter, NothingIsLost) {
  constexpr std::size_t kShard = 1024;
  for (const Case& c : {Case{"topk:0.05"},
                        {"topk:0.03,int8:stochastic"},
                        {"topk:0.02", ElementType::bf16},
                        {"topk:0.02,int4", ElementType::fp16},
                        {"int4"},
                        {"threshold:1.5,bf16"},
                        {"randomk:0.1"},
                        {"blocktopk:8/256"},
                        {"sign"},
                        {"none"}}) {
    SCOPED_TRACE(c.compressor);
    for (const int ranks : rank_counts()) {
      run_ranks(ranks, 2, [&](std::span<std::shared_ptr<Transport>> transports) {
        const int rank = transports[0]->rank(), size = transports[0]->size();
        Reducer reducer(
            transports[0],
            {.compressor = c.compressor, .op = ReduceOp::sum, .min_bytes = 0, .seed = 3});
        Reducer exact(transports[1], {.compressor = "none", .op = ReduceOp::sum});
        std::vector<float> applied(kShard), sent(kShard * static_cast<std::size_t>(size));
        for (int step = 0; step < 3; ++step) {
          auto input = make_gradient(Kind::normal, sent.size(), rank, step, kId);
          const auto output = reduce_scatter(reducer, c.type, input, kShard);
          for (std::size_t i = 0; i < kShard; ++i) applied[i] += output[i];
          for (std::size_t i = 0; i < sent.size(); ++i) sent[i] += input[i];
        }
        const auto residual = reducer.residual(kId);
        EXPECT_EQ(residual.empty(), std::string(c.compressor) == "none");
        for (std::size_t i = 0; i < residual.size(); ++i) sent[i] -= residual[i];
        const auto expected = reduce_scatter(exact, ElementType::float32, sent, kShard);
        const float rounding = c.type == ElementType::float32 ? 1e-4F : 0.1F;
        for (std::size_t i = 0; i < kShard; ++i) {
          EXPECT_NEAR(applied[i], expected[i], rounding) << "element " << i;
        }
      });
    }
  }
}

// A NaN of one rank, and a sum that becomes infinite on one: all ranks read NaN and have everything
// in their residuals; the next call goes on.
TEST(Scatter, PoisonIsOnEveryRankAndDoesNotStay) {
  constexpr std::size_t kShard = 500;
  constexpr float kLarge = 3e38F, kNan = std::numeric_limits<float>::quiet_NaN();
  struct Poison {
    ElementType type;
    float value;  // of element 17 of the last rank's shard
    bool of_all;  // ranks, or of rank 0 alone
  };
  for (const char* compressor : {"topk:0.05", "topk:0.05,int8", "int4"}) {
    for (const auto& [type, value, of_all] : {Poison{ElementType::float32, kNan, false},
                                              {ElementType::float32, kLarge, true},
                                              {ElementType::bf16, kNan, false}}) {
      for (const int ranks : rank_counts()) {
        run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
          const int rank = transport->rank(), size = transport->size();
          if (size == 1 && of_all) return;  // its own sum is no larger than itself
          Reducer reducer(transport,
                          {.compressor = compressor, .op = ReduceOp::sum, .min_bytes = 0});
          const std::size_t count = kShard * static_cast<std::size_t>(size);
          auto first = make_gradient(Kind::normal, count, rank, 0, kId);
          for (const float x : reduce_scatter(reducer, type, first, kShard)) {
            EXPECT_TRUE(std::isfinite(x));
          }
          const auto before = reducer.residual(kId);
          auto bad = make_gradient(Kind::normal, count, rank, 1, kId);
          const std::size_t at = count - kShard + 17;
          if (of_all || rank == 0) bad[at] = value;
          for (const float x : reduce_scatter(reducer, type, bad, kShard)) {
            EXPECT_TRUE(std::isnan(x));
          }
          EXPECT_EQ(reducer.last().poisoned, 1U);
          const auto after = reducer.residual(kId);
          for (std::size_t i = 0; i < count; ++i) {
            const float acc = bad[i] + before[i];
            const float expected = std::isfinite(acc) ? acc : before[i];
            EXPECT_NEAR(after[i], expected, std::abs(expected) * 2e-6F) << "element " << i;
          }
          if (of_all) return;
          auto good = make_gradient(Kind::normal, count, rank, 2, kId);
          for (const float x : reduce_scatter(reducer, type, good, kShard)) {
            EXPECT_TRUE(std::isfinite(x));
          }
        });
      }
    }
  }
}

// Sums that fp16 cannot hold: the shard's rank delivers the largest finite element and keeps the
// rest. The numbers are such that all sums are exact.
TEST(Scatter, WhatDoesNotFitWaits) {
  constexpr std::size_t kShard = 192;
  for (const char* compressor : {"topk:0.1", "topk:0.1,fp16"}) {
    for (const int ranks : rank_counts()) {
      run_ranks(ranks, 2, [&](std::span<std::shared_ptr<Transport>> transports) {
        const int rank = transports[0]->rank(), size = transports[0]->size();
        Reducer reducer(transports[0],
                        {.compressor = compressor, .op = ReduceOp::sum, .min_bytes = 0});
        Reducer exact(transports[1], {.compressor = "none", .op = ReduceOp::sum});
        const std::size_t count = kShard * static_cast<std::size_t>(size);
        std::vector<double> applied(kShard);
        bool clipped = false;
        std::uint64_t calls_clipped = 0;
        constexpr int kSteps = 4;
        const auto given = [](int of_rank, std::size_t i) {
          return 32.0F * static_cast<float>(1600 + 50 * of_rank + static_cast<int>(i % 50));
        };
        for (int step = 0; step < kSteps + 20 * size; ++step) {
          std::vector<float> input(count);
          for (std::size_t i = 0; step < kSteps && i < count; ++i) input[i] = given(rank, i);
          const auto output = reduce_scatter(reducer, ElementType::fp16, input, kShard);
          EXPECT_EQ(reducer.last().poisoned, 0U);
          calls_clipped += reducer.last().clipped;
          EXPECT_TRUE(reducer.last().clipped == 0 || std::ranges::count(output, 65504.0F) > 0);
          for (std::size_t i = 0; i < kShard; ++i) {
            EXPECT_TRUE(std::isfinite(output[i]));
            clipped = clipped || output[i] == 65504;
            applied[i] += static_cast<double>(output[i]);
          }
          if (step % 7 != 2 && step + 1 != kSteps + 20 * size) continue;
          std::vector<float> waiting = reducer.residual(kId);
          exact.all_reduce(waiting, kId);
          for (std::size_t i = 0; i < kShard; ++i) {
            const std::size_t at = static_cast<std::size_t>(rank) * kShard + i;
            double all = 0;
            for (int r = 0; r < size; ++r) all += static_cast<double>(given(r, at));
            all *= std::min(step + 1, kSteps);
            EXPECT_EQ(applied[i] + static_cast<double>(waiting[at]), all) << step;
          }
        }
        EXPECT_TRUE(clipped || size == 1);
        EXPECT_EQ(calls_clipped > 0, size > 1);
        for (const float left : reducer.residual(kId)) EXPECT_EQ(left, 0);
      });
    }
  }
}

/// Fails on rank 0 at a start that is counted from when it is armed.
class FailingTransport final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  Ticket start(const Exec& exec) override {
    if (left > 0 && --left == 0 && rank() == 0) throw CommError("the wire was cut");
    return ForwardingTransport::start(exec);
  }
  int left = 0;
};

TEST(Scatter, AFailedCallLosesNothing) {
  constexpr std::size_t kShard = 700;
  for (const char* compressor : {"topk:0.05", "int4"}) {
    for (const int ranks : rank_counts()) {
      Kept<std::vector<float>> inputs;
      run_ranks(ranks, [&](const std::shared_ptr<Transport>& inner) {
        const int rank = inner->rank(), size = inner->size();
        if (size == 1) return;  // nothing travels
        const auto transport = std::make_shared<FailingTransport>(inner);
        Reducer reducer(transport, {.compressor = compressor, .min_bytes = 0});
        const std::size_t count = kShard * static_cast<std::size_t>(size);
        auto& input = inputs.make(make_gradient(Kind::normal, count, rank, 0, kId));
        auto& output = inputs.make(kShard);
        reducer.reduce_scatter(input, output, kId);
        const auto before = reducer.residual(kId);
        input = make_gradient(Kind::normal, count, rank, 1, kId);
        tell_rank_0(*transport);
        transport->left = 1;
        EXPECT_THROW(reducer.reduce_scatter(input, output, kId), CommError);
        EXPECT_EQ(output, std::vector<float>(kShard));
        const auto after = reducer.residual(kId);
        for (std::size_t i = 0; i < count; ++i) {
          EXPECT_NEAR(after[i], input[i] + before[i], 1e-5F) << "element " << i;
        }
        EXPECT_THROW(reducer.reduce_scatter(input, output, kId), CommError);
      });
    }
  }
}

TEST(Scatter, StatsCountItsBytes) {
  constexpr std::size_t kShard = 20000;
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      const auto others = static_cast<std::uint64_t>(transport->size() - 1);
      const std::uint64_t count = kShard * (others + 1);
      for (const char* compressor : {"topk:0.01", "none"}) {
        Reducer reducer(transport, {.compressor = compressor, .min_bytes = 0});
        for (int step = 0; step < 3; ++step) {
          auto input = make_input(kShard, transport->size(), transport->rank(), step);
          std::vector<float> output(kShard);
          const auto before = transport->bytes_sent();
          reducer.reduce_scatter(input, output, kId);
          const Stats last = reducer.last();
          EXPECT_EQ(last.count, count);
          if (step == 2) {
            EXPECT_EQ(last.allocations, 0U);
          }
          EXPECT_EQ(last.dense_wire_bytes, others * kShard * sizeof(float));
          if (std::string(compressor) == "none") {
            EXPECT_EQ(last.schedule, "dense");
            EXPECT_EQ(last.wire_bytes, last.dense_wire_bytes);
            continue;
          }
          EXPECT_EQ(last.kept, others * kShard / 100);
          EXPECT_LE(last.wire_bytes, others * (kShard / 100 * 6 + 80));
          if (step == 0) continue;  // compares plans, too
          EXPECT_EQ(last.wire_bytes, transport->bytes_sent() - before);
        }
      }
    });
  }
}

// The output in the input, the average, calls in flight, and all_reduce with the same AllReducer.
TEST(ScatterUsage, TakesItsTurn) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      const auto size = static_cast<std::size_t>(transport->size());
      const auto rank = static_cast<std::size_t>(transport->rank());
      for (const char* compressor : {"topk:1", "topk:0.5", "none"}) {
        AllReducer reducer(transport, {.compressor = compressor, .min_bytes = 0});
        std::vector<float> all(100, static_cast<float>(rank));
        std::vector<float> input(64 * size, static_cast<float>(rank + 1));
        Work work = reducer.all_reduce_async(all, 1);
        const auto own = std::span(input).subspan(64 * rank, 64);
        reducer.reduce_scatter(input, own, 2);
        // Of equal elements other ranks keep the first half.
        const std::size_t kept = std::string(compressor) == "topk:0.5" ? 32 : 64;
        const auto alone = static_cast<float>(rank + 1) / static_cast<float>(size);
        for (std::size_t i = 0; i < own.size(); ++i) {
          EXPECT_FLOAT_EQ(own[i], i < kept ? static_cast<float>(size + 1) / 2 : alone) << i;
        }
        EXPECT_TRUE(work.test());
        work.wait();
        reducer.all_reduce(all, 1);
        EXPECT_EQ(reducer.totals().calls, 3U);
      }
    });
  }
}

TEST(ScatterUsage, MistakesAreAnErrorOnEveryRank) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      const auto size = static_cast<std::size_t>(transport->size());
      const std::size_t rank = static_cast<std::size_t>(transport->rank());
      const bool last = rank + 1 == size;
      AllReducer reducer(transport, {.compressor = "topk:0.1", .min_bytes = 0});
      std::vector<float> input(64 * size, 1), output(64), spare(64 * size + 1);
      std::vector<double> doubles(64 * size), of_doubles(64);
      const auto refuses = [&](const Elements& in, const Elements& out, std::uint64_t id,
                               std::optional<ReduceOp> op = {}) {
        EXPECT_THROW(reducer.reduce_scatter(in, out, id, op), UsageError);
      };
      refuses(input, output, 1, ReduceOp::maximum);
      refuses({doubles.data(), doubles.size(), ElementType::float64},
              {of_doubles.data(), of_doubles.size(), ElementType::float64}, 1);
      // One rank's mistake.
      refuses(input, last ? std::span(output).first(63) : std::span(output), 1);
      refuses(std::span(spare).first(input.size() + (last ? 1 : 0)), output, 1);
      if (size > 1) {
        refuses(input, last ? std::span(input).subspan(1, 64) : std::span(output), 1);
      }
      EXPECT_EQ(input, std::vector<float>(64 * size, 1));
      reducer.reduce_scatter(input, output, 1);
      if (size > 1) {  // an all_reduce cuts the residual otherwise
        reducer.all_reduce(input, 2);
        refuses(input, output, 2);
      }
      reducer.reduce_scatter(input, output, 1);
    });
  }
}

}  // namespace
}  // namespace winnow::tests
