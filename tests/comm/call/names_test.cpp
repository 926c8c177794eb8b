// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Errors say which option or parameter they are about, by its name, its values and its ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>
#include <winnow/allreducer.hpp>
#include <winnow/error.hpp>

#include "comm/plan/differences.hpp"
#include "comm/state/saved_state.hpp"
#include "tests/harness/ranks.hpp"
#include "tests/harness/usage_error.hpp"

namespace winnow::tests {
namespace {

using testing::HasSubstr;

const Options kOptions{
    .compressor = "topk:0.01", .schedule = "gather", .min_bytes = 0, .deadline = 60};

std::string ranks_up_to(int last) {
  return last == 0 ? "rank 0" : "ranks 0-" + std::to_string(last);
}

TEST(Names, OfOptionsThatDiffer) {
  for (const int count : rank_counts()) {
    run_ranks(count, [&](const std::shared_ptr<Transport>& world) {
      const int ranks = world->size(), last = ranks - 1;
      if (ranks == 1) return;
      Options options{.compressor = "topk:0.01", .deadline = 60, .threads = world->rank() + 1};
      if (world->rank() == last) {
        options.compressor = "topk:0.02,int8";
        options.exempt = {std::string(20000, 'x')};
        options.seed = 5;
      }
      const std::string error = usage_error([&] { const AllReducer reducer(world, options); });
      const std::string others = ranks_up_to(last - 1), odd = "rank " + std::to_string(last);
      EXPECT_THAT(error, HasSubstr("in its options: compressor is topk:0.01 on " + others +
                                   " and topk:0.02,int8 on " + odd + "; exempt is empty on " +
                                   others + " and xxx"));
      EXPECT_THAT(error, HasSubstr("; seed is 0 on " + others + " and 5 on " + odd));
      EXPECT_THAT(error, Not(HasSubstr("threads")));
      EXPECT_LT(error.size(), 2000U);
      // The transport has served its purpose, and does so again.
      options = {.compressor = "topk:0.01", .schedule = "gather", .deadline = 60};
      EXPECT_NO_THROW(const AllReducer reducer(world, options));
    });
  }
}

TEST(Names, OfParametersThatDifferInAFirstCall) {
  for (const int count : rank_counts()) {
    run_ranks(count, [&](const std::shared_ptr<Transport>& world) {
      const int ranks = world->size();
      if (ranks == 1) return;
      const bool odd = world->rank() == ranks - 1;
      AllReducer reducer(world, kOptions);
      std::vector<float> first(500), second(500);
      const auto error_of = [&](const Segment& theirs, const Segment& ours,
                                std::optional<ReduceOp> op = {}) {
        const Segment bucket[] = {{.elements = first, .id = 3, .name = "embedding"},
                                  odd ? theirs : ours};
        return usage_error([&] { reducer.all_reduce(bucket, op); });
      };
      const auto expect = [&](const std::string& error, const std::string& theirs,
                              const std::string& ours) {
        EXPECT_THAT(error, HasSubstr(odd ? ours + " there and " + theirs + " here"
                                         : theirs + " there and " + ours + " here"));
      };
      const Segment ours{.elements = second, .id = 7, .name = "layer1.weight"};
      const std::string text = "parameter number 2, 'layer1.weight' (id 7, 500 float32)";
      expect(error_of({.elements = second, .id = 9, .name = "layer1.bias"}, ours),
             "parameter number 2, 'layer1.bias' (id 9, 500 float32)", text);
      expect(error_of({.elements = std::span(second).first(499), .id = 7}, ours),
             "parameter number 2, 7 (499 float32)", text);
      Segment exempt = ours;
      exempt.dimensions = 1;
      expect(error_of(exempt, ours), text + ", exempt,", text);
      expect(error_of(ours, ours, odd ? ReduceOp::sum : ReduceOp::average), "a sum", "an average");
      std::vector<float> shard(100);
      const std::uint64_t all = 100 * static_cast<std::uint64_t>(ranks);
      std::vector<float> input(all);
      expect(usage_error([&] {
               if (odd) {
                 reducer.reduce_scatter(input, shard, 5);
               } else {
                 reducer.all_reduce(input, 5);
               }
             }),
             "reduce_scatter: an average", "an average");
    });
  }
}

TEST(Names, OfParametersInRefusals) {
  run_ranks(2, [](const std::shared_ptr<Transport>& world) {
    auto before = std::make_unique<AllReducer>(world, kOptions);
    AllReducer& reducer = *before;
    std::vector<float> values(600), other(600);
    std::vector<double> doubles(10);
    const std::string label = "parameter 'layer1.weight' (id 7)";
    const Segment good{.elements = std::span(values).first(500), .id = 7, .name = "layer1.weight"};
    const auto expect = [&](std::vector<Segment> bucket, const std::string& text) {
      EXPECT_THAT(usage_error([&] { reducer.all_reduce(bucket); }), HasSubstr(text));
    };
    Segment next = good;
    expect({good, next}, label + " is twice in one bucket");
    next.id = 8;
    next.name = "tied";
    expect({good, next}, "parameters 'layer1.weight' (id 7) and 'tied' (id 8) share memory");
    next = good;
    next.input = std::span<const float>(other).first(400);
    expect({next}, "the input of " + label + " has another count");
    next = {.elements = doubles, .id = 8, .name = "steps"};
    expect({good, next}, "parameter 'steps' (id 8) has float64 elements");
    reducer.all_reduce({&good, 1});
    next = good;
    next.elements = std::span(values).first(400);
    expect({next}, label + " had 500 elements and now has 400");
    next.name = {};  // its name is known
    expect({next}, label + " had 500 elements and now has 400");
    EXPECT_THAT(usage_error([&] { reducer.look_ahead(7, other, values, 0.5F); }),
                HasSubstr(label + " has 500 elements, not 600"));

    // The name goes with the state.
    const std::vector<std::byte> saved = reducer.save();
    before.reset();
    AllReducer later(world, kOptions);
    later.load(saved);
    EXPECT_THAT(usage_error([&] { later.look_ahead(7, other, values, 0.5F); }),
                HasSubstr(label + " has 500 elements, not 600"));
    comm::SavedState changed = comm::from_bytes(saved);
    changed.rank = (changed.rank + 1) % changed.ranks;
    changed.parameters[0].count = 400;
    changed.parameters[0].residual.clear();
    changed.parameters[0].pieces.resize(1);
    changed.parameters[0].piece_length = 400;
    const auto bytes = comm::to_bytes(changed);
    const std::span<const std::byte> states[] = {saved, bytes};
    EXPECT_THAT(usage_error([&] { comm::take_over(states, 0, 2, true); }),
                HasSubstr(label + " has different counts"));
  });
}

TEST(Differences, AreShortAndName) {
  const std::string long_value(5000, 'a');
  const std::string abridged = comm::abridged_options("links=" + long_value + " op=sum");
  EXPECT_LT(abridged.size(), 400U);
  EXPECT_NE(abridged, comm::abridged_options("links=" + long_value + "b op=sum"));
  const std::string_view texts[] = {"a=1 b=x", "a=2 b=x", "a=1 b=x", "a=2 b=x", "a=3 b=x"};
  EXPECT_EQ(comm::option_differences(texts),
            "a is 1 on ranks 0, 2 and 2 on ranks 1, 3 and 3 on rank 4");
  const std::string_view same[] = {"a=1 b=x", "a=1 b=x"};
  EXPECT_EQ(comm::option_differences(same), "");
  EXPECT_EQ(comm::option_differences(std::vector<std::string_view>(3)), "");
  EXPECT_EQ(comm::first_difference("a\nb", "a\nc"), "b there and c here");
  EXPECT_EQ(comm::first_difference("a", "a\nc"), "no more parameters there and c here");
  EXPECT_EQ(comm::first_difference("a\nb", "a\nb"), "");
}

}  // namespace
}  // namespace winnow::tests
