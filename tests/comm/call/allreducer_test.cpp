// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// The caller's view besides the laws: plans, exemptions, switches, wrong use, Stats.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "tests/harness/ranks.hpp"
#include "tests/harness/usage_error.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

/// Distinct small integers: sums over ranks are exact in any order.
std::vector<float> counting(std::uint64_t count, int rank) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(i % 1000) + static_cast<float>(rank);
  }
  return values;
}

/// 0 + 1 + ... + (ranks - 1).
float sum_of_ranks(int ranks) {
  const int sum = ranks * (ranks - 1) / 2;
  return static_cast<float>(sum);
}

void expect_counting_sum(std::span<const float> values, int ranks) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto sum = static_cast<float>(ranks) * static_cast<float>(i % 1000) + sum_of_ranks(ranks);
    EXPECT_EQ(values[i], sum) << "position " << i;
  }
}

TEST(Dense, SumsAndAverages) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      const int size = transport->size();
      for (const std::uint64_t count : {0U, 1U, 2U, 5U, 1001U, 70001U}) {
        auto values = counting(count, transport->rank());
        {
          AllReducer sum(transport, {.compressor = "none", .op = ReduceOp::sum});
          sum.all_reduce(values, 0);
          expect_counting_sum(values, size);
          EXPECT_EQ(sum.last().schedule, count == 0 ? "" : "dense");
        }

        AllReducer average(transport, {.compressor = "none"});
        values.assign(count, static_cast<float>(transport->rank()));
        average.all_reduce(values, 0);
        const float expected = sum_of_ranks(size) * (1.0F / static_cast<float>(size));
        for (const float value : values) EXPECT_EQ(value, expected);
      }
    });
  }
}

// Measured links and the schedule vary from run to run, but not from rank to rank.
TEST(Plan, AutoMeasuresTheLinksAndRanksAgree) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(transport, {.compressor = "topk:0.01", .op = ReduceOp::sum});
      std::vector<float> values(100000, 1.0F);
      reducer.all_reduce(values, 0);
      const Stats& last = reducer.last();
      const auto expected =
          transport->size() == 1 ? "there is one rank alone" : "predicted to take";
      EXPECT_EQ(last.reason.find(expected), 0U) << last.reason;
      std::vector<char> all(32 * static_cast<std::size_t>(transport->size()));
      std::array<char, 32> mine{};
      last.schedule.copy(mine.data(), mine.size() - 1);
      transport->all_gather({}, std::as_bytes(std::span(mine)),
                            std::as_writable_bytes(std::span(all)), Deadline::never());
      for (std::size_t r = 0; r < all.size(); r += mine.size()) {
        EXPECT_EQ(std::string(&all[r]), last.schedule);
      }
    });
  }
}

TEST(Plan, AutoTakesWhatIsFastestOnTheLinksGiven) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      const auto schedule_on = [&](const char* links) {
        AllReducer reducer(transport, {.compressor = "topk:0.01", .links = links});
        std::vector<float> values(100000, 1.0F);
        reducer.all_reduce(values, 0);
        return reducer.last().schedule;
      };
      EXPECT_EQ(schedule_on("intra=1us,100GB/s inter=1us,100GB/s pass=1GB/s"), "dense");
      const std::string slow = schedule_on("intra=1us,1MB/s inter=1us,1MB/s pass=10GB/s");
      EXPECT_EQ(slow == "dense", transport->size() == 1) << slow;
    });
  }
}

TEST(Plan, BytesDecideWhereAsked) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      const auto run = [&](const Options& options, std::uint64_t count) {
        AllReducer reducer(transport, options);
        auto values = counting(count, transport->rank());
        reducer.all_reduce(values, 0);
        return reducer.last();
      };
      const Stats small = run({.compressor = "topk:0.01", .links = kGivenLinks}, 100);
      EXPECT_EQ(small.schedule, "dense");
      EXPECT_NE(small.reason.find("min_bytes"), std::string::npos) << small.reason;
      EXPECT_EQ(run({.compressor = "topk:0.01", .enable = false}, 100000).schedule, "dense");
      const char* const bytes = "least_bytes";
      EXPECT_EQ(run({.compressor = "topk:0.99", .schedule = bytes}, 100000).schedule, "dense");
      EXPECT_EQ(run({.compressor = "topk:0.01", .schedule = bytes}, 100000).schedule,
                transport->size() == 1   ? "dense"
                : transport->size() == 2 ? "gather"
                                         : "balanced");
      EXPECT_EQ(run({.compressor = "topk:0.01", .schedule = "dense"}, 100000).schedule, "dense");
    });
  }
}

// One schedule serves all parts of a bucket, even if another is cheaper for a short last part.
TEST(Plan, AShortLastPartDoesNotDecide) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      if (transport->size() == 1) return;
      AllReducer reducer(
          transport, {.compressor = "topk:0.01", .schedule = "least_bytes", .max_part = 100000});
      std::vector<float> values(100001, 1.0F);
      reducer.all_reduce(values, 1);
      EXPECT_EQ(reducer.last().schedule, transport->size() == 2 ? "gather" : "balanced");
    });
  }
}

TEST(Plan, ExemptParametersTravelDense) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(transport, {.compressor = "topk:0.01",
                                     .schedule = "gather",
                                     .op = ReduceOp::sum,
                                     .exempt = {"*norm*", "head.?"}});
      auto matrix = counting(50000, transport->rank()), bias = counting(1001, transport->rank());
      auto norm = bias, head = bias, given = bias;
      const Segment segments[] = {{.elements = bias, .id = 1, .dimensions = 1},
                                  {.elements = matrix, .id = 2, .dimensions = 2, .name = "w"},
                                  {.elements = norm, .id = 3, .name = "layer1.norm.scale"},
                                  {.elements = head, .id = 4, .dimensions = 2, .name = "head.1"},
                                  {.elements = given, .id = 5, .dimensions = 2, .exempt = true}};
      reducer.all_reduce(segments);
      EXPECT_EQ(reducer.last().schedule, "gather+dense");
      EXPECT_EQ(reducer.last().kept, 500U + 4 * 1001U);
      for (const auto& dense : {bias, norm, head, given})
        expect_counting_sum(dense, transport->size());
      for (const float held : reducer.residual(1)) EXPECT_EQ(held, 0.0F);
      EXPECT_NE(*std::ranges::max_element(reducer.residual(2)), 0.0F);
    });
  }
}

// If a parameter with a residual travels dense next, the residual travels along, once.
TEST(Plan, TheFirstDenseCallFlushesTheResidual) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(transport, {.compressor = "topk:0.01",
                                     .schedule = "gather",
                                     .op = ReduceOp::sum,
                                     .decay = 0.5F,
                                     .min_bytes = 8000});
      std::vector<float> a(1000), big(9000, 0.0F);
      for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i + 1);
      const Segment both[] = {{.elements = a, .id = 1}, {.elements = big, .id = 2}};
      reducer.all_reduce(both);
      EXPECT_EQ(reducer.residual(1)[0], 1.0F);
      EXPECT_EQ(reducer.residual(1)[999], 0.0F);

      std::ranges::fill(a, 1.0F);
      reducer.all_reduce(a, 1);
      EXPECT_EQ(reducer.last().schedule, "dense");
      const auto p = static_cast<float>(transport->size());
      EXPECT_EQ(a[0], 1.5F * p);
      EXPECT_EQ(a[989], 496 * p);
      EXPECT_EQ(a[999], p);
      for (const float left : reducer.residual(1)) EXPECT_EQ(left, 0.0F);
      std::ranges::fill(a, 1.0F);
      reducer.all_reduce(a, 1);
      for (const float value : a) EXPECT_EQ(value, p);
    });
  }
}

TEST(Usage, OptionsThatDifferAreAnErrorOnEveryRank) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      if (transport->size() == 1) return;
      const bool odd = transport->rank() == 1;
      const auto differ = usage_error([&] {
        const AllReducer reducer(transport, {.compressor = odd ? "topk:0.02" : "topk:0.01"});
      });
      EXPECT_NE(differ.find("options"), std::string::npos) << differ;
      const auto wrong = usage_error([&] {
        const AllReducer reducer(transport, {.compressor = odd ? "topc:0.01" : "topk:0.01"});
      });
      const auto deadline =
          usage_error([&] { const AllReducer reducer(transport, {.deadline = odd ? 30.0 : 0.0}); });
      EXPECT_NE(deadline.find("options"), std::string::npos) << deadline;
      const auto endless = usage_error([&] {
        const AllReducer reducer(transport,
                                 {.deadline = odd ? std::numeric_limits<double>::infinity() : 0.0});
      });
      EXPECT_NE(endless.find(odd ? "seconds" : "rank 1"), std::string::npos) << endless;
      const auto pattern = usage_error(
          [&] { const AllReducer reducer(transport, {.exempt = {odd ? "layer norm*" : "*"}}); });
      EXPECT_NE(pattern.find(odd ? "blanks" : "rank 1"), std::string::npos) << pattern;
      EXPECT_NE(wrong.find(odd ? "did you mean 'topk'" : "rank 1"), std::string::npos) << wrong;
      // Threads, printing and the place of a device's residuals may differ, and the transport is
      // still usable.
      AllReducer reducer(
          transport, {.links = kGivenLinks,
                      .threads = odd ? 2 : 1,
                      .residual_memory = odd ? ResidualMemory::pinned_host : ResidualMemory::device,
                      .stats = odd ? 2 : 0,
                      .debug = odd ? 1 : 0});
      auto values = counting(10, transport->rank());
      reducer.all_reduce(values, 0);
    });
  }
}

TEST(Usage, BucketsThatDifferAreAnErrorOnEveryRank) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      if (transport->size() == 1) return;
      const bool odd = transport->rank() == 1;
      AllReducer reducer(
          transport,
          {.compressor = "topk:0.01", .schedule = "gather", .op = ReduceOp::sum, .min_bytes = 0});
      std::vector<float> values(odd ? 999 : 1000, 3.0F);
      const auto counts = usage_error([&] { reducer.all_reduce(values, 7); });
      EXPECT_NE(counts.find("count of elements"), std::string::npos) << counts;
      for (const float value : values) EXPECT_EQ(value, 3.0F);

      values.assign(1000, 3.0F);
      const auto ids = usage_error([&] { reducer.all_reduce(values, odd ? 8 : 9); });
      EXPECT_NE(ids.find("ids"), std::string::npos) << ids;
      const Segment named{.elements = values, .id = 7, .dimensions = odd ? 1 : 2};
      const auto shape = usage_error([&] { reducer.all_reduce(std::span(&named, 1)); });
      EXPECT_NE(shape.find("to be sent"), std::string::npos) << shape;

      const Segment shared[] = {{.elements = std::span(values).first(600), .id = 20},
                                {.elements = {}, .id = 21},
                                {.elements = std::span(values).subspan(odd ? 599 : 600), .id = 22}};
      const auto overlap = usage_error([&] { reducer.all_reduce(shared); });
      EXPECT_NE(overlap.find(odd ? "parameters 20 and 22 share memory" : "rank 1 refuses"),
                std::string::npos)
          << overlap;
      const auto unknown = static_cast<ElementType>(odd ? 42 : 0);
      const auto type = usage_error(
          [&] { reducer.all_reduce(Elements(values.data(), values.size(), unknown), 23); });
      EXPECT_NE(type.find(odd ? "unknown type 42" : "rank 1 refuses"), std::string::npos) << type;

      // Nothing of the refused calls remains.
      reducer.all_reduce(values, 7);
      EXPECT_EQ(values[0], 3.0F * static_cast<float>(transport->size()));
      EXPECT_EQ(values[10], 0.0F);
      EXPECT_EQ(reducer.residual(7)[10], 3.0F);
    });
  }
}

// Ids do not tell which tensors are exempt: ranks that disagree would sum one tensor with another.
TEST(Usage, ExemptionsThatDifferAreAnErrorOnEveryRank) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      if (transport->size() == 1) return;
      const bool odd = transport->rank() == 1;
      AllReducer reducer(
          transport,
          {.compressor = "topk:0.01", .schedule = "gather", .min_bytes = 0, .exempt = {"norm"}});
      std::vector<float> x(1000, 1.0F), y(1000, 100.0F);
      const Segment segments[] = {{.elements = x, .id = 1, .name = odd ? "norm" : "weight"},
                                  {.elements = y, .id = 2, .name = odd ? "weight" : "norm"}};
      const auto error = usage_error([&] { reducer.all_reduce(segments); });
      EXPECT_NE(error.find("exempt"), std::string::npos) << error;
      EXPECT_EQ(x[0], 1.0F);
      const Segment flags[] = {{.elements = x, .id = 3, .exempt = odd}, {.elements = y, .id = 4}};
      const auto other = usage_error([&] { reducer.all_reduce(flags); });
      EXPECT_NE(other.find("exempt"), std::string::npos) << other;
    });
  }
}

TEST(Usage, ABucketOfTooManyPartsIsAnErrorOnEveryRank) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(
          transport,
          {.compressor = "topk:0.5", .schedule = "gather", .min_bytes = 0, .max_part = 1});
      std::vector<float> values(transport->rank() == 0 ? 65537 : 65536);
      const auto error = usage_error([&] { reducer.all_reduce(values, 1); });
      EXPECT_NE(error.find(transport->rank() == 0 ? "max_part" : "rank 0 refuses"),
                std::string::npos)
          << error;
      EXPECT_TRUE(reducer.residual(1).empty());
    });
  }
}

TEST(Usage, ABucketThatIsWrongByItselfIsAnErrorOnEveryRank) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(transport, {.links = kGivenLinks});
      std::vector<float> values(10), more(11);
      const Segment twice[] = {{.elements = values, .id = 1}, {.elements = more, .id = 1}};
      EXPECT_NE(usage_error([&] { reducer.all_reduce(twice); }).find("twice"), std::string::npos);
      reducer.all_reduce(values, 5);
      // One rank's changed mind is an error on every rank.
      const bool odd = transport->rank() == 0;
      const auto changed = usage_error([&] { reducer.all_reduce(more, odd ? 5 : 6); });
      EXPECT_NE(changed.find(odd ? "had 10 elements and now has 11" : "rank 0"), std::string::npos)
          << changed;
    });
  }
}

/// Reduces parameters 0 to `count` - 1, of three elements each, in an order that starts with
/// `first`.
void reduce_from(AllReducer& reducer, std::size_t first, std::size_t count) {
  std::vector<float> values(3 * count, 1.0F);
  std::vector<Segment> segments;
  for (std::size_t i = 0; i < count; ++i) {
    segments.push_back(
        {.elements = std::span(values).subspan(3 * i, 3), .id = (first + i) % count});
  }
  reducer.all_reduce(segments);
  EXPECT_EQ(values,
            std::vector<float>(values.size(), static_cast<float>(reducer.transport().size())));
}

TEST(Forget, TheBucketsCalledLeastRecentlyWhenThereAreTooMany) {
  constexpr std::size_t kParameters = 4000;
  // 65536 segments, and four for each parameter.
  constexpr std::size_t kKept = 65536 / kParameters + 4;
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    AllReducer reducer(transport, {.compressor = "none", .op = ReduceOp::sum});
    for (std::size_t order = 0; order < 2 * kKept; ++order) {
      reduce_from(reducer, 0, kParameters);
      reduce_from(reducer, order, kParameters);
    }
    EXPECT_EQ(reducer.bucket_stats().size(), kKept);
    // The first is in use and stays first; the others are the last ones, in the order of their
    // calls.
    EXPECT_EQ(reducer.bucket_stats()[0].totals.calls, 2 * kKept + 1);
    EXPECT_EQ(reducer.bucket_stats()[1].totals.calls, 1U);
    const std::uint64_t calls = reducer.totals().calls;
    reduce_from(reducer, 1, kParameters);  // forgotten, so planned again
    EXPECT_EQ(reducer.bucket_stats().size(), kKept);
    EXPECT_EQ(reducer.bucket_stats().back().totals.calls, 1U);
    EXPECT_EQ(reducer.totals().calls, calls + 1);
  });
}

TEST(Forget, ABucketButNotItsResiduals) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(
          transport,
          {.compressor = "topk:0.1", .schedule = "gather", .op = ReduceOp::sum, .min_bytes = 0});
      std::vector<float> a(1000, 1.0F), b(10, 1.0F);
      const Segment segment{.elements = std::span(a), .id = 1};
      reducer.all_reduce(a, 1);
      reducer.all_reduce(b, 2);
      const std::span<const float> residual = reducer.residual(1);
      const std::vector<float> before(residual.begin(), residual.end());
      reducer.forget({&segment, 1}, ReduceOp::average);  // never called
      EXPECT_EQ(reducer.bucket_stats().size(), 2U);
      reducer.forget({&segment, 1});
      reducer.forget({&segment, 1});
      EXPECT_EQ(reducer.bucket_stats().size(), 1U);
      EXPECT_EQ(reducer.residual(1).data(), residual.data());
      EXPECT_EQ(std::vector<float>(residual.begin(), residual.end()), before);
      std::ranges::fill(a, 1.0F);
      reducer.all_reduce(a, 1);
      EXPECT_EQ(a[150], 2.0F * static_cast<float>(ranks));
      EXPECT_EQ(reducer.bucket_stats().size(), 2U);
      EXPECT_EQ(reducer.bucket_stats()[1].count, 1000U);
    });
  }
}

}  // namespace
}  // namespace winnow::tests
