// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/parallel.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/kernels/float_modes.hpp"
#include "tests/kernels/inputs.hpp"

namespace winnow::tests {
namespace {

using kernels::cpu::Ranges;

TEST(Ranges, CoverEverythingOnceInOrder) {
  for (const int threads : {-1, 0, 1, 2, 3, 7, 64}) {
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{8191}, std::size_t{8192}, std::size_t{65537},
          kLargeSize, (std::size_t{1} << 40) + 5}) {
      const Ranges ranges(threads, count);
      std::size_t at = 0;
      for (std::size_t i = 0; i < ranges.size(); ++i) {
        EXPECT_EQ(ranges.begin(i), at);
        EXPECT_EQ(at % Ranges::kBlock, 0u);
        at = ranges.end(i);
        EXPECT_TRUE(at > ranges.begin(i) || count == 0);
      }
      EXPECT_EQ(at, count);
      EXPECT_LE(ranges.size(), static_cast<std::size_t>(std::max(threads, 1)));
    }
  }
}

TEST(ForEachPart, RunsEachPartOnceAndRethrows) {
  for (const std::size_t n : {1u, 2u, 3u, 17u}) {
    std::vector<std::atomic<int>> runs(n);
    const auto body = [&](std::size_t i) {
      ++runs[i];
      if (i + 1 == n) throw std::runtime_error("from a part");
    };
    EXPECT_THROW(kernels::cpu::for_each_part(n, body), std::runtime_error);
    for (const auto& run : runs) EXPECT_EQ(run.load(), 1);
  }
}

TEST(ForEachPart, EveryThreadComputesWithDenormals) {
  for (const std::size_t n : {1u, 2u, 3u}) {
    std::vector<float> halves(n);
    const FlushToZero flush;  // threads that start here may inherit it
    kernels::cpu::for_each_part(n, [&](std::size_t i) {
      const volatile float smallest = std::numeric_limits<float>::min();
      halves[i] = smallest * 0.5f;
    });
    EXPECT_EQ(bits_of(halves), std::vector<std::uint32_t>(n, 0x00400000u));
  }
}

TEST(ForEachPart, ThreadsHaveHelpersOfTheirOwn) {
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (std::size_t round = 0; round < 2000; ++round) {
        const std::size_t n = 1 + round % 4;
        std::vector<std::size_t> squares(n);
        kernels::cpu::for_each_part(n, [&](std::size_t i) { squares[i] = i * i + round; });
        for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(squares[i], i * i + round);
      }
    });
  }
}

TEST(ForEachPart, RunsWithinAPart) {
  std::atomic<int> runs = 0;
  kernels::cpu::for_each_part(
      3, [&](std::size_t) { kernels::cpu::for_each_part(5, [&](std::size_t) { ++runs; }); });
  EXPECT_EQ(runs, 15);
}

TEST(ForEachPart, HelpersThatSleepAreWoken) {
  for (int round = 0; round < 5; ++round) {
    std::atomic<int> runs = 0;
    kernels::cpu::for_each_part(3, [&](std::size_t) { ++runs; });
    EXPECT_EQ(runs, 3);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

TEST(ForEachPart, RunsInAChildOfAFork) {
  const auto runs = [] {
    std::atomic<int> count = 0;
    kernels::cpu::for_each_part(3, [&](std::size_t) { ++count; });
    return count.load();
  };
  EXPECT_EQ(runs(), 3);  // the parent's helpers, which the child does not have
  const pid_t child = ::fork();
  if (child == 0) std::exit(runs() == 3 ? 0 : 1);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(runs(), 3);
}

}  // namespace
}  // namespace winnow::tests
