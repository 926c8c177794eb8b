// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// `shared` beyond the laws: bytes, turns, and residuals at its support.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>
#include <winnow/winnow.hpp>

#include "comm/schedule/schedule.hpp"
#include "compress/compressor.hpp"
#include "lab/predict/prediction.hpp"
#include "lab/simulated/simulated.hpp"
#include "tests/harness/forwarding_transport.hpp"
#include "tests/harness/sanitized.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

using comm::SimulatedTransport;
using comm::SimulatedWorld;

constexpr std::uint64_t kTargetCount = 4'194'304;

void run_simulated(int ranks, const SimulatedWorld::Body& body) {
  (void)SimulatedWorld{.topology = Topology::uniform(ranks, 1)}.run(body);
}

Options options(const std::string& compressor, const std::string& schedule = "shared") {
  return {.compressor = compressor,
          .schedule = schedule,
          .op = ReduceOp::sum,
          .min_bytes = 0,
          .threads = 1};
}

comm::CostShape shape(int ranks, const std::string& compressor) {
  const auto made = compress::make_compressor(compressor);
  return {.ranks = ranks,
          .count = kTargetCount,
          .k = made->kept(kTargetCount),
          .codings = made->codings()};
}

// 1 % of 4,194,304 elements on 4 ranks, with real messages: a rank sends the bytes of the cost row,
// which are as few as promised.
TEST(SharedBytes, OfFourRanksAreFew) {
  struct Case {
    const char* compressor;
    std::uint64_t most;
  };
  for (const Case& c : {Case{"topk:0.01", 300'000}, Case{"topk:0.01,fp16", 180'000}}) {
    const char* const compressor = c.compressor;
    SCOPED_TRACE(compressor);
    const std::uint64_t promised = comm::find_schedule("shared").wire_bytes(shape(4, compressor));
    EXPECT_LE(promised, c.most);
    run_simulated(4, [&](const std::shared_ptr<SimulatedTransport>& transport) {
      AllReducer reducer(transport, options(compressor));
      std::vector<float> gradient(kTargetCount);
      for (int step = 0; step < 2; ++step) {
        for (std::size_t i = 0; i < gradient.size(); ++i) {
          const auto mixed =
              static_cast<std::uint32_t>(i + 7 * static_cast<std::size_t>(step) +
                                         31 * static_cast<std::size_t>(transport->rank())) *
              0x9e3779b9U;
          gradient[i] = static_cast<float>(mixed >> 8) * 0x1p-24F;
        }
        const std::uint64_t before = transport->bytes_sent();
        reducer.all_reduce(gradient, 1);
        EXPECT_EQ(reducer.last().wire_bytes, promised);
        // The first call compares plans, in headers.
        EXPECT_EQ(transport->bytes_sent() - before, promised + (step == 0 ? 3 * 64 : 0));
      }
    });
  }
}

// Beyond the factor (P - 1) / P, bytes are nearly the same for any number of ranks.
TEST(SharedBytes, GrowByTwoPercentFrom4To64Ranks) {
  const auto bytes = [](int ranks) {
    const comm::Prediction prediction = comm::predict({.topology = Topology::uniform(ranks, 1),
                                                       .count = kTargetCount,
                                                       .compressor = "topk:0.01",
                                                       .schedule = "shared",
                                                       .max_part = Options::kMaxPart});
    EXPECT_EQ(prediction.wire_bytes,
              comm::find_schedule("shared").wire_bytes(shape(ranks, "topk:0.01")));
    return static_cast<double>(prediction.wire_bytes) * ranks / (ranks - 1);
  };
  EXPECT_LE(bytes(64), 1.02 * bytes(4));
}

// Rank r's gradient is large at place r of each unit and zero elsewhere, so results show who
// chose. Several buckets take turns: each counts its own calls.
TEST(Shared, EveryRankChoosesInEachUnitInTurn) {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    for (const std::uint64_t buckets : {1U, 4U}) {
      run_simulated(ranks, [&](const std::shared_ptr<SimulatedTransport>& transport) {
        const auto units = 3 * static_cast<std::uint64_t>(ranks);
        AllReducer reducer(transport, options("topk:0.015625"));  // one of each unit
        std::vector<float> gradient(64 * units);
        std::vector<std::vector<int>> chosen(units * buckets, std::vector<int>(64));
        for (int step = 0; step < 2 * ranks; ++step) {
          for (std::uint64_t bucket = 0; bucket < buckets; ++bucket) {
            for (std::size_t i = 0; i < gradient.size(); ++i) {
              gradient[i] = i % 64 == static_cast<std::size_t>(transport->rank()) ? 1.0F : 0.0F;
            }
            reducer.all_reduce(gradient, bucket);
            for (std::size_t i = 0; i < gradient.size(); ++i) {
              chosen[bucket * units + i / 64][i % 64] += gradient[i] != 0 ? 1 : 0;
            }
          }
        }
        for (const auto& of_unit : chosen) {
          for (int place = 0; place < 64; ++place) {
            EXPECT_EQ(of_unit[static_cast<std::size_t>(place)], place < ranks ? 2 : 0)
                << ranks << " ranks, " << buckets << " buckets, place " << place;
          }
        }
      });
    }
  }
}

// With float32 values no rank keeps a residual where a sum was made, and exactly k positions get
// sums.
TEST(Shared, NothingIsLeftAtTheSupport) {
  for (const int ranks : {2, 3, 7}) {
    run_simulated(ranks, [&](const std::shared_ptr<SimulatedTransport>& transport) {
      AllReducer reducer(transport, options("topk:0.01"));
      const auto count = static_cast<std::uint64_t>(ranks) * 6400;
      for (int step = 0; step < 4; ++step) {
        auto gradient = make_gradient(Kind::normal, count, transport->rank(), step, 1);
        reducer.all_reduce(gradient, 1);
        std::uint64_t sums = 0;
        for (std::size_t i = 0; i < count; ++i) {
          if (gradient[i] == 0) continue;
          ++sums;
          EXPECT_EQ(reducer.residual(1)[i], 0.0F) << i;
        }
        EXPECT_EQ(sums, count / 100);
        EXPECT_EQ(reducer.last().kept, count / 100);
      }
    });
  }
}

// Between nodes, too, no rank keeps a residual where a sum was made: k of the node sums of each
// rail get sums.
TEST(Shared, NothingIsLeftAtTheSupportInTwoLevels) {
  for (const char* text : {"1x3", "2x2", "3,1,2", "4x2"}) {
    SCOPED_TRACE(text);
    const Topology topology = Topology::parse(text);
    const auto body = [&](const std::shared_ptr<SimulatedTransport>& transport) {
      AllReducer reducer(transport, options("topk:0.01", "two_level:shared"));
      const auto count = static_cast<std::uint64_t>(topology.nodes() * topology.rails()) * 6400;
      for (int step = 0; step < 4; ++step) {
        auto gradient = make_gradient(Kind::normal, count, transport->rank(), step, 1);
        reducer.all_reduce(gradient, 1);
        std::uint64_t sums = 0;
        for (std::size_t i = 0; i < count; ++i) {
          if (gradient[i] == 0) continue;
          ++sums;
          EXPECT_EQ(reducer.residual(1)[i], 0.0F) << i;
        }
        EXPECT_EQ(sums, count / 100);
      }
    };
    (void)SimulatedWorld{.topology = topology}.run(body);
  }
}

// Put-back restores what was taken bit for bit, though values travelled coded.
TEST(Shared, AnOverflowingCodedSumIsRestored) {
  for (const char* compressor : {"topk:0.01,int8", "int8", "topk:0.01"}) {
    run_simulated(3, [&](const std::shared_ptr<SimulatedTransport>& transport) {
      AllReducer reducer(transport, options(compressor));
      auto gradient = make_gradient(Kind::normal, 6400, transport->rank(), 0, 1);
      gradient[500] = std::numeric_limits<float>::max();
      const auto acc = gradient;
      reducer.all_reduce(gradient, 1);
      EXPECT_EQ(reducer.last().poisoned, 1U) << compressor;
      EXPECT_TRUE(same_bits(reducer.residual(1), acc)) << compressor;
    });
  }
}

// Each node's sum is finite, but their total is not: ranks that only hear of it report it, too.
TEST(Shared, AnOverflowBetweenNodesIsRestored) {
  for (const char* compressor : {"topk:0.01,int8", "int8", "topk:0.01"}) {
    const auto body = [&](const std::shared_ptr<SimulatedTransport>& transport) {
      AllReducer reducer(transport, options(compressor, "two_level:shared"));
      auto gradient = make_gradient(Kind::normal, 6400, transport->rank(), 0, 1);
      gradient[500] = 0.3F * std::numeric_limits<float>::max();
      const auto acc = gradient;
      reducer.all_reduce(gradient, 1);
      EXPECT_EQ(reducer.last().poisoned, 1U) << compressor;
      EXPECT_TRUE(same_bits(reducer.residual(1), acc)) << compressor;
    };
    (void)SimulatedWorld{.topology = Topology::uniform(2, 2)}.run(body);
  }
}

/// Truncates the next message that it sends, once armed.
class ShorteningTransport final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  void send(std::span<const std::byte> message, int peer) override {
    const bool now = --sends_left == 0;
    ForwardingTransport::send(now ? message.first(message.size() - 4) : message, peer);
  }

  int sends_left = 0;
};

// Values without a header are exactly as many as their support.
TEST(Shared, ValuesOfAnotherSizeAreRefused) {
  for (const int number : {2, 3}) {  // the contribution, the sum
    run_simulated(2, [&](const std::shared_ptr<SimulatedTransport>& transport) {
      const auto wire = std::make_shared<ShorteningTransport>(transport);
      AllReducer reducer(wire, options("topk:0.01"));
      std::vector<float> gradient(12800, 1.0F);
      reducer.all_reduce(gradient, 1);
      if (transport->rank() == 1) wire->sends_left = number;
      try {
        reducer.all_reduce(gradient, 1);
        EXPECT_TRUE(number == 3 && transport->rank() == 1);
      } catch (const CommError& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find("rank 1 sent 252 bytes of values at a support that takes 256"),
                  std::string::npos)
            << text;
      }
    });
  }
}

void expect_no_turn_allocates(const std::shared_ptr<SimulatedTransport>& transport,
                              const char* schedule, std::uint64_t count, int turns) {
  AllReducer reducer(transport, options(count % 2 == 0 ? "none" : "topk:0.3,int8", schedule));
  for (int step = 0; step < 2 * turns; ++step) {
    auto gradient = make_gradient(Kind::normal, count, transport->rank(), step, 1);
    reducer.all_reduce(gradient, 1);
    if (step > 0) {
      EXPECT_EQ(reducer.last().allocations, 0U) << count << " step " << step;
    }
  }
}

// The first call allocates for the largest of all turns; some of the many sizes just fill a block.
// Odd strides: every second size is sparse.
constexpr std::uint64_t kSanitizedShare = kSanitized ? 9 : 1;

TEST(Shared, NoTurnAllocates) {
  for (const int ranks : {2, 3, 5}) {
    for (std::uint64_t count = 100; count < 60000; count += 487 * kSanitizedShare) {
      run_simulated(ranks, [&](const std::shared_ptr<SimulatedTransport>& transport) {
        expect_no_turn_allocates(transport, "shared", count, ranks);
      });
    }
  }
}

TEST(Shared, NoTurnAllocatesInTwoLevels) {
  for (const char* text : {"3x2", "1,1,2,1,1"}) {
    SCOPED_TRACE(text);
    const Topology topology = Topology::parse(text);
    for (std::uint64_t count = 100; count < 6000; count += 37 * kSanitizedShare) {
      const auto body = [&](const std::shared_ptr<SimulatedTransport>& transport) {
        expect_no_turn_allocates(transport, "two_level:shared", count, topology.nodes());
      };
      (void)SimulatedWorld{.topology = topology}.run(body);
    }
  }
}

// Each position of a part has one owner, and no owner has more of a piece than most_for says.
TEST(Shared, OwnersInTurnHaveEveryPositionOnce) {
  const auto compressor = compress::make_compressor("topk:0.1");
  for (const std::uint32_t owners : {1U, 2U, 3U, 7U, 64U}) {
    compress::ParameterState state;
    compress::Part part;
    std::vector<float> elements(10000);
    for (const std::uint64_t size : {1U, 63U, 64U, 65U, 200U, 1000U, 8001U}) {
      const std::uint64_t base = (part.count + 63) / 64 * 64;
      part.pieces.push_back({.elements = std::span(elements).first(size),
                             .parameter = &state,
                             .base = static_cast<std::uint32_t>(base)});
      part.count = base + size;
    }
    compress::share_out(part, *compressor, owners, 0);
    std::vector<std::uint64_t> most(part.pieces.size()), sum(part.pieces.size());
    for (std::uint32_t owner = 0; owner < owners; ++owner) {
      compress::become_owner(part, *compressor, owner);
      EXPECT_EQ(part.self, owner);
      std::uint64_t k = 0;
      for (std::size_t i = 0; i < part.pieces.size(); ++i) {
        sum[i] += part.pieces[i].own_count;
        most[i] = std::max(most[i], part.pieces[i].own_count);
        k += part.pieces[i].own_k;
      }
      EXPECT_EQ(k, part.owner_k[owner]);
    }
    for (std::size_t i = 0; i < part.pieces.size(); ++i) {
      EXPECT_EQ(sum[i], part.pieces[i].elements.size());
      EXPECT_LE(most[i], part.most_owned(part.pieces[i]));
      EXPECT_LE(part.most_owned(part.pieces[i]), most[i] + 64);
    }
  }
}

// A selection that one rank makes for all is never a default.
TEST(Shared, IsTakenByNameAlone) {
  for (const char* name : {"auto", "least_bytes", "two_level"}) {
    for (const comm::Schedule* schedule : comm::find_schedules(name)) {
      EXPECT_FALSE(schedule->name.ends_with("shared")) << name;
    }
  }
  for (const char* name : {"shared", "two_level:shared"}) {
    EXPECT_EQ(comm::find_schedules(name).front()->name, name);
    EXPECT_EQ(Options::parse(std::string("schedule=") + name).schedule, name);
  }
}

}  // namespace
}  // namespace winnow::tests
