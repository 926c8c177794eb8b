// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "lab/simulated/timetable.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <utility>
#include <vector>

namespace winnow::comm {
namespace {

TEST(Timetable, NamesTheEarliestAndInATieTheLowest) {
  Timetable timetable(4);
  EXPECT_TRUE(timetable.empty());
  timetable.set(3, 2);
  timetable.set(1, 2);
  timetable.set(2, 5);
  EXPECT_EQ(timetable.number(), 1U);
  timetable.set(2, 1);
  EXPECT_EQ(timetable.number(), 2U);
  EXPECT_EQ(timetable.time(), 1);
  timetable.set(2, 9);
  timetable.erase(1);
  timetable.erase(1);
  EXPECT_EQ(timetable.number(), 3U);
  timetable.erase(3);
  EXPECT_EQ(timetable.time(), 9);
}

TEST(Timetable, EqualsASortedSet) {
  std::mt19937 random(7);
  constexpr std::uint32_t kSize = 37;
  Timetable timetable(kSize);
  std::set<std::pair<double, std::uint32_t>> sorted;
  std::vector<double> times(kSize, -1);
  for (int step = 0; step < 20000; ++step) {
    // The test often picks a number due now, as a simulation does, from few different times, so
    // that many tie.
    const bool first = !sorted.empty() && random() % 2 == 0;
    const auto number =
        first ? sorted.begin()->second : static_cast<std::uint32_t>(random() % kSize);
    sorted.erase({times[number], number});
    if (random() % 4 == 0) {
      timetable.erase(number);
      times[number] = -1;
    } else {
      times[number] = static_cast<double>(random() % 10);
      timetable.set(number, times[number]);
      sorted.emplace(times[number], number);
    }
    ASSERT_EQ(timetable.empty(), sorted.empty());
    if (sorted.empty()) continue;
    ASSERT_EQ(timetable.time(), sorted.begin()->first);
    ASSERT_EQ(timetable.number(), sorted.begin()->second);
  }
}

}  // namespace
}  // namespace winnow::comm
