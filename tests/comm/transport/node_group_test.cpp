// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Ranks as threads, each of which maps the memory for itself, as processes do.
#include "comm/transport/shm/node_group.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>
#include <winnow/error.hpp>

#include "kernels/reduce.hpp"
#include "lab/reference/place.hpp"

namespace winnow::tests {
namespace {

using comm::NodeGroup;
using comm::NodeMemory;

/// Runs `body` as each of `ranks` ranks of a group.
void run_group(int ranks, const std::function<void(NodeGroup&, int rank)>& body) {
  const std::size_t bytes = NodeGroup::memory_bytes(ranks);
  const NodeMemory made = NodeMemory::make(bytes);
  ASSERT_TRUE(made);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      NodeGroup group(NodeMemory::open(made.address(), bytes), rank, ranks);
      if (group) {
        body(group, rank);
      } else {
        ADD_FAILURE() << "the memory cannot be opened";
      }
    });
  }
}

/// Looks that a call makes until it gives up.
std::function<void()> give_up_after(int looks) {
  return [left = looks]() mutable {
    if (left-- == 0) throw std::runtime_error("gave up");
  };
}
const std::function<void()> kNoLook = [] {};

float number(int rank, int call, std::size_t i) {
  const auto mixed = static_cast<std::uint32_t>(rank * 7919 + call * 104729) +
                     static_cast<std::uint32_t>(i) * 2654435761U;
  return std::ldexp(static_cast<float>(mixed % 4096) - 2048, static_cast<int>(mixed % 23) - 11);
}

/// op over the ranks, one after the other.
std::vector<float> in_rank_order(int ranks, int call, std::size_t count, ReduceOp op) {
  std::vector<float> all(count), next(count);
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<float>& of_rank = rank == 0 ? all : next;
    for (std::size_t i = 0; i < count; ++i) of_rank[i] = number(rank, call, i);
    if (rank > 0) kernels::reduce({.place = lab::kReference}, op, all, next);
  }
  return all;
}

/// Rooms are used again in every second call, by ranks that come at any time, for a few elements,
/// which each rank reduces whole, and for many, of which each reduces its share.
TEST(NodeGroup, ReducesInRankOrder) {
  for (const int ranks : {2, 3, 5}) {
    run_group(ranks, [&](NodeGroup& group, int rank) {
      const std::vector<std::size_t> counts = {1, 2, 1000, 5000, 16'000, 65'536};
      for (int call = 0; call < 120; ++call) {
        const std::size_t count = counts[static_cast<std::size_t>(call * 5 + call / 7) % 6];
        const ReduceOp op = call % 3 == 0 ? ReduceOp::maximum : ReduceOp::sum;
        std::vector<float> elements(count);
        for (std::size_t i = 0; i < count; ++i) elements[i] = number(rank, call, i);
        if ((call + rank) % 11 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
        EXPECT_TRUE(group.takes(count * sizeof(float)));
        group.all_reduce({}, elements, op, kNoLook);
        EXPECT_TRUE(elements == in_rank_order(ranks, call, count, op))
            << ranks << " ranks, call " << call;
      }
    });
  }
}

/// Of two NaNs a sum keeps the first, on each rank the same one.
TEST(NodeGroup, GivesAllRanksTheSameBits) {
  std::vector<std::vector<std::uint32_t>> of_rank(3);
  run_group(3, [&](NodeGroup& group, int rank) {
    std::vector<std::uint32_t> bits(40'000, 0x7fc00000U + static_cast<std::uint32_t>(rank) + 1);
    group.all_reduce({}, Elements(bits.data(), bits.size(), ElementType::float32), ReduceOp::sum,
                     kNoLook);
    of_rank[static_cast<std::size_t>(rank)] = bits;
  });
  EXPECT_EQ(of_rank[0], of_rank[1]);
  EXPECT_EQ(of_rank[0], of_rank[2]);
}

TEST(NodeGroup, ReducesElementsOfAnyType) {
  run_group(2, [&](NodeGroup& group, int rank) {
    std::vector<std::int64_t> longs = {std::int64_t{1} << 40, rank};
    group.all_reduce({}, longs, ReduceOp::product, kNoLook);
    EXPECT_EQ(longs, (std::vector<std::int64_t>{0, 0}));
    std::vector<std::uint8_t> bytes = {3, static_cast<std::uint8_t>(250 + rank)};
    group.all_reduce({}, bytes, ReduceOp::sum, kNoLook);
    EXPECT_EQ(bytes, (std::vector<std::uint8_t>{6, 245}));
  });
}

TEST(NodeGroup, RanksThatDifferAreToldAlike) {
  std::atomic<int> told = 0;
  run_group(3, [&](NodeGroup& group, int rank) {
    std::vector<float> elements(rank == 1 ? 5 : 4);
    try {
      group.all_reduce({}, elements, ReduceOp::sum, kNoLook);
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(" 20"));
      EXPECT_THAT(error.what(), testing::HasSubstr(" 16"));
      ++told;
    }
  });
  EXPECT_EQ(told, 3);
}

TEST(NodeGroup, ALookEndsTheWaitForARankThatDoesNotCome) {
  for (const std::size_t count : {4U, 60'000U}) {
    run_group(2, [&](NodeGroup& group, int rank) {
      std::vector<float> elements(count);
      if (rank == 1) return;
      EXPECT_THROW(group.all_reduce({}, elements, ReduceOp::sum, give_up_after(3)),
                   std::runtime_error);
    });
  }
}

TEST(NodeGroup, AnAlarmIsSeenByAll) {
  std::atomic<int> raised = 0;
  run_group(3, [&](NodeGroup& group, int rank) {
    EXPECT_FALSE(rank == 2 && group.alarm_is_raised());
    if (rank == 2) group.raise_alarm();
    std::vector<float> elements(4);
    group.all_reduce({}, elements, ReduceOp::sum, kNoLook);
    if (group.alarm_is_raised()) ++raised;
  });
  EXPECT_EQ(raised, 3);
}

/// With so many ranks that rooms become smaller.
TEST(NodeGroup, ManyRanksTakeNoMoreMemory) {
  EXPECT_LE(NodeGroup::memory_bytes(256), std::size_t{17} << 20);
  const NodeGroup many(NodeMemory::make(NodeGroup::memory_bytes(256)), 0, 256);
  ASSERT_TRUE(many);
  EXPECT_TRUE(many.takes(16 << 10));
  EXPECT_FALSE(many.takes(64 << 10));
  EXPECT_FALSE(NodeGroup().takes(4));
}

}  // namespace
}  // namespace winnow::tests
