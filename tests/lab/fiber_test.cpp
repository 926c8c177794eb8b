// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "lab/simulated/fiber.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cfenv>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace winnow::comm {
namespace {

TEST(Fiber, RunsInTurnsWithItsOwner) {
  std::string order;
  Fiber* self = nullptr;
  Fiber fiber([&] {
    order += 'a';
    self->suspend();
    order += 'b';
  });
  self = &fiber;
  EXPECT_EQ(order, "");
  fiber.resume();
  order += '1';
  EXPECT_FALSE(fiber.ended());
  fiber.resume();
  order += '2';
  EXPECT_TRUE(fiber.ended());
  EXPECT_EQ(order, "a1b2");
}

TEST(Fiber, MayNeverRun) {
  Fiber fiber([] { FAIL(); });
}

// An exception that a fiber is handling is still its own after others have handled theirs.
TEST(Fiber, KeepsItsExceptions) {
  std::vector<std::unique_ptr<Fiber>> fibers(3);
  int seen = 0;
  for (std::size_t n = 0; n < fibers.size(); ++n) {
    fibers[n] = std::make_unique<Fiber>([&, n] {
      try {
        try {
          throw std::runtime_error("fiber " + std::to_string(n));
        } catch (const std::exception&) {
          fibers[n]->suspend();
          throw;
        }
      } catch (const std::exception& error) {
        EXPECT_EQ(error.what(), "fiber " + std::to_string(n));
        ++seen;
      }
    });
  }
  for (const auto& fiber : fibers) fiber->resume();
  EXPECT_EQ(std::uncaught_exceptions(), 0);
  EXPECT_FALSE(std::current_exception());
  for (const std::size_t n : {1U, 0U, 2U}) fibers[n]->resume();
  EXPECT_EQ(seen, 3);
}

TEST(Fiber, KeepsItsFloatMode) {
  Fiber* self = nullptr;
  Fiber fiber([&] {
    std::fesetround(FE_UPWARD);
    self->suspend();
    EXPECT_EQ(std::fegetround(), FE_UPWARD);
  });
  self = &fiber;
  fiber.resume();
  EXPECT_EQ(std::fegetround(), FE_TONEAREST);
  fiber.resume();
  EXPECT_EQ(std::fegetround(), FE_TONEAREST);
}

TEST(Fiber, HasRoomForDeepCalls) {
  Fiber fiber([] {
    std::array<volatile char, 200000> large;
    for (std::size_t i = 0; i < large.size(); i += 1000) large[i] = 1;
    EXPECT_EQ(large[1000], 1);
  });
  fiber.resume();
  EXPECT_TRUE(fiber.ended());
}

}  // namespace
}  // namespace winnow::comm
