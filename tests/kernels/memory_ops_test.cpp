// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/memory_ops.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>
#include <winnow/error.hpp>

#include "tests/kernels/cases/memory_ops_cases.hpp"

namespace winnow::tests {
namespace {

constexpr Exec kHostExecs[] = {
    {.place = Place::reference}, {.threads = 1}, {.threads = 2}, {.threads = 3}};

TEST(MemoryOps, FillLeavesTheValueAndNothingElse) {
  for (const Exec& exec : kHostExecs) {
    expect_fill_equals_reference(
        [&](std::span<float> elements, float value) { kernels::fill(exec, elements, value); });
  }
}

TEST(MemoryOps, CopyMovesTheBitsAndNothingElse) {
  for (const Exec& exec : kHostExecs) {
    expect_copy_equals_reference(
        [&](std::span<float> to, std::span<const float> from) { kernels::copy(exec, to, from); });
  }
}

TEST(MemoryOps, CopyTakesBytes) {
  const std::array<std::byte, 3> from{std::byte{1}, std::byte{2}, std::byte{3}};
  std::array<std::byte, 4> to{};
  for (const Exec& exec : kHostExecs) {
    to = {};
    kernels::copy(exec, std::span(to).last(3), from);
    EXPECT_EQ(to, (std::array{std::byte{0}, std::byte{1}, std::byte{2}, std::byte{3}}));
  }
}

TEST(MemoryOps, CopyRefusesUnequalSizes) {
  std::vector<float> to(3);
  const std::vector<float> from(4);
  EXPECT_THROW(kernels::copy({}, to, from), UsageError);
}

}  // namespace
}  // namespace winnow::tests
