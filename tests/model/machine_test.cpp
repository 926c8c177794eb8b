// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/model/machine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>
#include <vector>

#include "tests/model/orders.hpp"

namespace winnow::tests {
namespace {

using simt::kLanes;
using simt::kThreads;

/// Each thread reads what another wrote before the barrier.
struct Reverse {
  unsigned* out;

  struct Shared {
    unsigned values[kThreads];
  };
  void run(Shared& shared) const {
    shared.values[simt::thread()] = simt::thread();
    simt::barrier();
    out[simt::thread()] = shared.values[kThreads - 1 - simt::thread()];
  }
};

bool reverses(const SimtOrder& order, int skipped_barrier) {
  std::vector<unsigned> out(kThreads), expected(kThreads);
  std::iota(expected.rbegin(), expected.rend(), 0U);
  Machine machine(order);
  machine.skip_barrier(skipped_barrier);
  machine.launch<Reverse>(1, {out.data()});
  EXPECT_EQ(machine.barriers(), 1);
  return out == expected;
}

TEST(SimtMachine, ABarrierOrdersWhatThreadsWriteAndRead) {
  for (const SimtOrder& order : simt_orders()) EXPECT_TRUE(reverses(order, -1)) << order;
}

TEST(SimtMachine, AMissingBarrierShowsInEveryOrder) {
  for (const SimtOrder& order : simt_orders()) EXPECT_FALSE(reverses(order, 0)) << order;
}

/// Each thread copies a word that another reads.
struct CopyReversed {
  const unsigned* from;
  unsigned* out;
  bool waits;

  struct Shared {
    unsigned values[kThreads];
  };
  void run(Shared& shared) const {
    simt::copy_word(shared.values + simt::thread(), from + simt::thread());
    if (waits) simt::await_copies();
    simt::barrier();
    out[simt::thread()] = shared.values[kThreads - 1 - simt::thread()];
  }
};

TEST(SimtMachine, CopiesAreThereOnceTheyAreAwaited) {
  std::vector<unsigned> from(kThreads), out(kThreads), expected(kThreads);
  std::iota(from.begin(), from.end(), 0U);
  std::iota(expected.rbegin(), expected.rend(), 0U);
  for (const SimtOrder& order : simt_orders()) {
    Machine(order).launch<CopyReversed>(1, {from.data(), out.data(), true});
    EXPECT_EQ(out, expected) << order;
    Machine(order).launch<CopyReversed>(1, {from.data(), out.data(), false});
    EXPECT_NE(out, expected) << order;
  }
}

/// Collective calls of warp and block.
struct Collectives {
  std::uint32_t *largest, *votes, *any;
  std::uint64_t *before, *total, *sum;

  struct Shared {
    simt::ScanRoom room;
  };
  void run(Shared& shared) const {
    const unsigned t = simt::thread();
    largest[t] = simt::warp_max(t * 7 % 64);
    votes[t] = simt::ballot(t % 3 == 0);
    sum[t] = simt::warp_sum(std::uint64_t{t} << 40);
    const simt::Scanned scanned = simt::scan(shared.room, t + 1);
    before[t] = scanned.before;
    total[t] = scanned.total;
    any[t] = (simt::barrier_or(t == 77) ? 1U : 0U) | (simt::barrier_or(false) ? 2U : 0U);
  }
};

TEST(SimtMachine, CollectiveCallsSeeAllThreads) {
  for (const SimtOrder& order : simt_orders()) {
    SCOPED_TRACE(testing::Message() << order);
    std::vector<std::uint32_t> largest(kThreads), votes(kThreads), any(kThreads);
    std::vector<std::uint64_t> before(kThreads), total(kThreads), sum(kThreads);
    Machine(order).launch<Collectives>(
        1, {largest.data(), votes.data(), any.data(), before.data(), total.data(), sum.data()});
    for (unsigned t = 0; t < kThreads; ++t) {
      const unsigned first = t / kLanes * kLanes;
      std::uint32_t most = 0, vote = 0;
      std::uint64_t lanes = 0;
      for (unsigned l = 0; l < kLanes; ++l) {
        most = std::max(most, (first + l) * 7 % 64);
        vote |= ((first + l) % 3 == 0 ? 1U : 0U) << l;
        lanes += std::uint64_t{first + l} << 40;
      }
      EXPECT_EQ(largest[t], most);
      EXPECT_EQ(votes[t], vote);
      EXPECT_EQ(sum[t], lanes);
      EXPECT_EQ(before[t], t * (t + 1) / 2);
      EXPECT_EQ(total[t], kThreads * (kThreads + 1) / 2);
      EXPECT_EQ(any[t], 1U);
    }
  }
}

/// Blocks that take numbers, and wait for the previous one, as decoupled look-back does.
struct Chain {
  std::uint32_t *ticket, *sums;

  struct Shared {
    std::uint32_t turn;
  };
  void run(Shared& shared) const {
    if (simt::thread() == 0) shared.turn = simt::atomic_add(ticket, 1);
    simt::barrier();
    if (simt::thread() != kThreads - 1) return;
    std::uint32_t before = 0;
    while (shared.turn > 0 && before == 0) {
      before = simt::published(&sums[shared.turn - 1]);
      if (before == 0) simt::idle();
    }
    simt::publish(&sums[shared.turn], before + 1);
  }
};

TEST(SimtMachine, BlocksMayWaitForThoseThatHaveStarted) {
  for (const SimtOrder& order : simt_orders(4)) {
    SCOPED_TRACE(testing::Message() << order);
    std::uint32_t ticket = 0;
    std::vector<std::uint32_t> sums(9), expected(9);
    std::iota(expected.begin(), expected.end(), 1U);
    Machine machine(order);
    machine.launch<Chain>(9, {&ticket, sums.data()});
    EXPECT_EQ(sums, expected);
  }
}

/// Waits for the next block, which may never start.
struct Backwards {
  std::uint32_t* done;

  void run() const {
    if (simt::thread() != 0) return;
    if (simt::block() == 0) {
      while (simt::published(done) == 0) simt::idle();
    }
    simt::publish(done, 1U);
  }
};

TEST(SimtMachine, SpinningForEverIsAnError) {
  std::uint32_t done = 0;
  Machine machine;
  EXPECT_THAT([&] { machine.launch<Backwards>(2, {&done}); },
              testing::ThrowsMessage<SimtError>(testing::HasSubstr("spin for ever")));
}

/// Some threads leave before a barrier; with `in_warp`, one stays away from its warp's ballot.
struct Divergent {
  bool in_warp;

  void run() const {
    if (simt::thread() == 5 && in_warp) (void)simt::shuffle_xor(1U, 1);
    if (simt::thread() == 5) return;
    if (in_warp) (void)simt::ballot(true);
    simt::barrier();
  }
};

TEST(SimtMachine, ThreadsThatMissACollectiveCallAreAnError) {
  Machine machine;
  EXPECT_THAT(
      [&] { machine.launch<Divergent>(1, {false}); },
      testing::ThrowsMessage<SimtError>(testing::HasSubstr("255 threads wait at a barrier")));
  EXPECT_THAT([&] { machine.launch<Divergent>(1, {true}); },
              testing::ThrowsMessage<SimtError>(testing::HasSubstr("different collective calls")));
  // The machine can be used again.
  std::vector<unsigned> out(kThreads);
  EXPECT_NO_THROW(machine.launch<Reverse>(1, {out.data()}));
}

/// A fiber resumes on its launch's thread, and machines are independent.
TEST(SimtMachine, ThreadsOfTheHostTakeTurnsOrHaveMachinesOfTheirOwn) {
  Machine shared;
  std::vector<unsigned> expected(kThreads);
  std::iota(expected.rbegin(), expected.rend(), 0U);
  const auto reverse_on = [&](Machine& machine) {
    for (int launches = 0; launches < 20; ++launches) {
      std::vector<unsigned> out(kThreads);
      machine.launch<Reverse>(3, {out.data()});
      EXPECT_TRUE(out == expected);
    }
  };
  for (int turn = 0; turn < 3; ++turn) std::jthread([&] { reverse_on(shared); });
  std::vector<std::jthread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      Machine own;
      reverse_on(own);
    });
  }
}

/// An access of 16 bytes at a multiple of 4.
struct Misaligned {
  float* at;

  void run() const {
    float four[4];
    simt::load4(at + 1, four);
  }
};

TEST(SimtMachine, AMisalignedVectorIsAnError) {
  alignas(16) float values[8] = {};
  EXPECT_THAT([&] { Machine().launch<Misaligned>(1, {values}); },
              testing::ThrowsMessage<SimtError>(testing::HasSubstr("not aligned")));
}

}  // namespace
}  // namespace winnow::tests
