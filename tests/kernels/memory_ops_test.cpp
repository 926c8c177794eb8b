// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/memory_ops.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <vector>
#include <winnow/error.hpp>

#include "kernels/exec/lab_places.hpp"
#include "tests/harness/kernel_place.hpp"
#include "tests/kernels/cases/memory_ops_cases.hpp"

namespace winnow::tests {
namespace {

TEST(MemoryOps, FillLeavesTheValueAndNothingElse) {
  for_each_body([](const Exec& exec) {
    expect_fill_equals_reference([&](std::span<float> elements, float value) {
      OnPlace<float> there(exec, around(elements));
      kernels::fill(exec, inside(there.span()), value);
      std::ranges::copy(there.download(), around(elements).begin());
    });
  });
}

TEST(MemoryOps, FillRoundsHalves) {
  for_each_body([](const Exec& exec) {
    for (const auto& [type, bits] :
         {std::pair{ElementType::bf16, 0x3eab}, {ElementType::fp16, 0x3555}}) {
      for (const std::size_t size : {std::size_t{0}, std::size_t{7}, many(9001)}) {
        std::vector<std::uint16_t> expected(size + 2 * kAround, 7);
        OnPlace<std::uint16_t> there(exec, expected);
        const auto halves = inside(there.span());
        kernels::fill(exec, {halves.data(), halves.size(), type}, 1.0F / 3);
        std::ranges::fill(inside(std::span(expected)), static_cast<std::uint16_t>(bits));
        EXPECT_EQ(there.download(), expected);
      }
    }
  });
}

TEST(MemoryOps, CopyMovesTheBitsAndNothingElse) {
  for_each_body([](const Exec& exec) {
    expect_copy_equals_reference([&](std::span<float> to, std::span<const float> from) {
      OnPlace<float> there(exec, around(to)), source(exec, from);
      kernels::copy(exec, inside(there.span()), source.span());
      std::ranges::copy(there.download(), around(to).begin());
    });
  });
}

TEST(MemoryOps, CopyTakesBytes) {
  const std::vector<std::byte> bytes{std::byte{1}, std::byte{2}, std::byte{3}};
  for_each_body([&](const Exec& exec) {
    OnPlace<std::byte> from(exec, bytes), to(exec, 4);
    kernels::copy(exec, to.span().last(3), from.span());
    EXPECT_EQ(to.download(), (std::vector{std::byte{0}, std::byte{1}, std::byte{2}, std::byte{3}}));
  });
}

TEST(MemoryOps, CopyRefusesUnequalSizes) {
  std::vector<float> to(3);
  const std::vector<float> from(4);
  EXPECT_THROW(kernels::copy({}, to, from), UsageError);
}

TEST(MemoryOps, StoreTakesWhatTheHostHasNow) {
  for_each_body([](const Exec& exec) {
    for (const std::size_t count : {0U, 1U, 3U, 895U, 896U, 897U, 7999U, 8000U, 8001U, 17'000U}) {
      OnPlace<std::uint32_t> there(exec, count + 2);
      std::vector<std::uint32_t> list(count), expected(count + 2);
      for (std::size_t i = 0; i < count; ++i) list[i] = static_cast<std::uint32_t>(i) + 10;
      std::ranges::copy(list, expected.begin() + 1);
      kernels::store(exec, std::as_writable_bytes(there.span().subspan(1, count)),
                     std::as_bytes(std::span(list)));
      std::ranges::fill(list, 0U);
      EXPECT_EQ(there.download(), expected) << count;
    }
  });
}

TEST(MemoryOps, ZeroClearsBytes) {
  for_each_body([](const Exec& exec) {
    OnPlace<std::byte> there(exec, std::vector<std::byte>(9, std::byte{7}));
    kernels::zero(exec, there.span().subspan(1, 7));
    std::vector<std::byte> expected(9, std::byte{0});
    expected.front() = expected.back() = std::byte{7};
    EXPECT_EQ(there.download(), expected);
  });
}

TEST(MemoryOps, OnlyPredictionsCount) {
  std::vector<float> elements(3);
  EXPECT_THROW(kernels::fill({.place = kernels::kCountedPlace}, elements, 1), UsageError);
}

}  // namespace
}  // namespace winnow::tests
