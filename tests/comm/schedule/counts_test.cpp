// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Messages of schedules if sizes do not travel: counts go first where a gradient decides how long
// messages are, and nothing more is sent where (count, k) do.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>
#include <winnow/allreducer.hpp>
#include <winnow/error.hpp>

#include "tests/harness/nodes_transport.hpp"
#include "tests/harness/ranks.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

/// Counts what the rank sends; the test decides whether sizes travel.
class CountingTransport final : public NodesTransport {
 public:
  CountingTransport(std::shared_ptr<Transport> inner, const Options& options, bool sizes_travel)
      : NodesTransport(std::move(inner), per_node(options.schedule)), sizes_travel_(sizes_travel) {}
  bool sizes_travel() const override { return sizes_travel_; }
  void send(std::span<const std::byte> message, int peer) override {
    ++messages;
    ForwardingTransport::send(message, peer);
  }
  Ticket start(const Exec& exec) override {
    ++starts;
    return ForwardingTransport::start(exec);
  }

  std::uint64_t messages = 0, starts = 0;

 private:
  bool sizes_travel_;
};

struct Sent {
  std::uint64_t messages, starts, bytes, wire_bytes;
};

/// This rank's traffic in the second call of a bucket in one part.
Sent second_call(const std::shared_ptr<Transport>& inner, const Options& options,
                 bool sizes_travel) {
  const auto transport = std::make_shared<CountingTransport>(inner, options, sizes_travel);
  AllReducer reducer(transport, options);
  Sent before{};
  for (int step = 0; step < 2; ++step) {
    auto gradient = make_gradient(Kind::heavy_tailed, 30000, inner->rank(), step, 1);
    before = {transport->messages, transport->starts, transport->bytes_sent(), 0};
    reducer.all_reduce(gradient, 0);
  }
  return {transport->messages - before.messages, transport->starts - before.starts,
          transport->bytes_sent() - before.bytes, reducer.last().wire_bytes};
}

struct Case {
  const char* compressor;
  const char* schedule;
  std::uint64_t rounds_of_sizes;  ///< of rounds that send sizes to every other rank
};

class Counts : public testing::TestWithParam<Case> {};

TEST_P(Counts, TravelOnlyWhereAGradientDecidesThem) {
  const Case c = GetParam();
  const Options options{.compressor = c.compressor, .schedule = c.schedule, .min_bytes = 0};
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      const auto peers = static_cast<std::uint64_t>(transport->size() - 1);
      if (peers == 0) return;
      const Sent with = second_call(transport, options, true);
      const Sent without = second_call(transport, options, false);
      EXPECT_EQ(without.messages - with.messages, c.rounds_of_sizes * peers);
      EXPECT_EQ(without.starts - with.starts, c.rounds_of_sizes);
      EXPECT_EQ(without.bytes - with.bytes, 8 * c.rounds_of_sizes * peers);
      EXPECT_EQ(with.wire_bytes, with.bytes);
      EXPECT_EQ(without.wire_bytes, without.bytes);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Schedules, Counts,
    testing::Values(Case{"topk:0.01", "gather", 0}, Case{"topk:0.01,int8,bitmap", "gather", 0},
                    Case{"topk:0.01,raw32", "gather", 0}, Case{"int4", "gather", 0},
                    Case{"threshold:2", "gather", 1}, Case{"topk:0.01", "balanced", 1},
                    Case{"int8", "balanced", 0}, Case{"none", "balanced", 0},
                    Case{"threshold:2", "balanced", 2}, Case{"topk:0.01", "shared", 0},
                    Case{"topk:0.01,int8", "shared", 0}, Case{"int4", "doubling", 0}),
    [](const auto& test) { return "case" + std::to_string(test.index); });

// 3 ranks: rank 0 has guest 1, and exchanges the sum of two ranks for the gradient of rank 2.
TEST(Counts, TravelWithUnionsAlone) {
  run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
    if (transport->size() != 3) return;
    const Options options{.compressor = "topk:0.01", .schedule = "doubling", .min_bytes = 0};
    const Sent with = second_call(transport, options, true);
    const Sent without = second_call(transport, options, false);
    // Rank 0 sends the sum of two ranks to 2 and that of three to 1; the others send their
    // gradients.
    const std::uint64_t unions = transport->rank() == 0 ? 2 : 0;
    EXPECT_EQ(without.messages - with.messages, unions);
    EXPECT_EQ(without.bytes - with.bytes, 8 * unions);
    // A rank that receives a union also stops for its size.
    EXPECT_EQ(without.starts - with.starts, transport->rank() == 0 ? 2U : 1U);
  });
}

// 4 ranks on two nodes, where no union travels but the sum of both: each rank serves a shard.
TEST(Counts, TravelWithTheSumOfNodes) {
  run_ranks(4, [&](const std::shared_ptr<Transport>& transport) {
    if (transport->size() != 4) return;
    const Options options{
        .compressor = "topk:0.01", .schedule = "two_level:doubling", .min_bytes = 0};
    const Sent with = second_call(transport, options, true);
    const Sent without = second_call(transport, options, false);
    EXPECT_EQ(without.messages - with.messages, 1U);
    EXPECT_EQ(without.bytes - with.bytes, 8U);
    EXPECT_EQ(without.starts - with.starts, 1U);
  });
}

/// Replaces what rank 0 says of its messages before it sends them.
class LyingTransport final : public NodesTransport {
 public:
  LyingTransport(std::shared_ptr<Transport> inner, const Options& options, std::uint64_t lie)
      : NodesTransport(std::move(inner), per_node(options.schedule)), lie_(lie) {}
  bool sizes_travel() const override { return false; }
  void send(std::span<const std::byte> message, int peer) override {
    const bool lies = armed && rank() == 0 && message.size() == sizeof lie_;
    ForwardingTransport::send(lies ? std::as_bytes(std::span(&lie_, 1)) : message, peer);
  }

  bool armed = false;

 private:
  std::uint64_t lie_;
};

/// Whether a rank may end the call with all that it needs, before it hears of an abort.
using MayEnd = bool (*)(const Transport&);
bool nobody(const Transport&) {
  return false;
}

void expect_lie_is_an_error(const char* compressor, const char* schedule, MayEnd may_end,
                            std::uint64_t lie, const char* why) {
  run_ranks(3, [&](const std::shared_ptr<Transport>& inner) {
    if (inner->size() == 1) return;
    const Options options{.compressor = compressor, .schedule = schedule};
    const auto transport = std::make_shared<LyingTransport>(inner, options, lie);
    AllReducer reducer(transport, options);
    auto gradient = make_gradient(Kind::normal, 20000, inner->rank(), 0, 1);
    reducer.all_reduce(gradient, 0);
    const std::vector<float> before(reducer.residual(0).begin(), reducer.residual(0).end());
    gradient = make_gradient(Kind::normal, 20000, inner->rank(), 1, 1);
    const std::vector<float> untouched = gradient;
    transport->armed = true;
    std::string text;
    try {
      reducer.all_reduce(gradient, 0);
    } catch (const CommError& error) {
      text = error.what();
    }
    if (text.empty() && may_end(*transport)) return;
    // Ranks that did not hear it learnt of it by an abort.
    EXPECT_NE(text.find(why), std::string::npos) << text;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      EXPECT_EQ(gradient[i], 0.0F);
      EXPECT_EQ(reducer.residual(0)[i], untouched[i] + before[i]);
    }
  });
}

TEST(Counts, BytesBeyondTheMostAreAnErrorAndNothingIsLost) {
  expect_lie_is_an_error("threshold:2", "balanced", nobody, std::uint64_t{1} << 40,
                         "rank 0 says that 1099511627776 bytes follow");
}

/// Likewise of a gradient's elements, of which all but one would take more bytes than all. A rank
/// that needs no more may end.
TEST(Counts, AlmostAllOfAGradientIsNoMoreThanAll) {
  const MayEnd anybody = [](const Transport&) { return true; };
  expect_lie_is_an_error("threshold:2", "doubling", anybody, 19999, "message from rank 0");
}

/// Ranks tell each other where elements begin and end, 32 bits each, that they keep for an owner.
TEST(Counts, ACountBeyondTheMostIsAnErrorAndNothingIsLost) {
  constexpr std::uint64_t kFrom7 = 7;
  expect_lie_is_an_error("topk:0.02", "balanced", nobody, std::uint64_t{4000000007} << 32 | kFrom7,
                         "rank 0 says that the elements from 7 to 4000000007 follow");
  expect_lie_is_an_error("topk:0.02", "balanced", nobody, std::uint64_t{6} << 32 | kFrom7,
                         "rank 0 says that the elements from 7 to 6 follow");
}

/// And how many elements unions have. Of four ranks two need nothing of rank 0; in two levels the
/// other node has the sum already.
TEST(Counts, AUnionBeyondTheMostIsAnErrorAndNothingIsLost) {
  constexpr std::uint64_t kLie = std::uint64_t{1} << 40;
  const char* const why = "rank 0 says that 1099511627776 elements follow";
  const MayEnd apart = [](const Transport& of) { return of.size() == 4 && of.rank() % 2 == 1; };
  const MayEnd on_another_node = [](const Transport& of) { return of.node() != 0; };
  expect_lie_is_an_error("topk:0.02", "doubling", apart, kLie, why);
  expect_lie_is_an_error("topk:0.02", "two_level:doubling", on_another_node, kLie, why);
}

}  // namespace
}  // namespace winnow::tests
