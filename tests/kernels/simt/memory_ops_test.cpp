// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/memory_ops.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "tests/kernels/cases/memory_ops_cases.hpp"
#include "tests/kernels/simt/pieces.hpp"
#include "tests/model/machine.hpp"
#include "tests/model/orders.hpp"

namespace winnow::tests {
namespace {

class MemoryOpsOnModel : public testing::TestWithParam<SimtOrder> {};
INSTANTIATE_TEST_SUITE_P(Orders, MemoryOpsOnModel, testing::ValuesIn(simt_orders()));

TEST_P(MemoryOpsOnModel, FillEqualsReference) {
  Machine machine(GetParam());
  expect_fill_equals_reference([&](std::span<float> elements, float value) {
    launch_one_piece<kernels::cuda::Fill>(
        machine, 2, {{elements.data(), ElementType::float32}, elements.size(), value});
  });
}

/// Each piece gets its own value, and what lies between pieces keeps its content.
TEST_P(MemoryOpsOnModel, PiecesOfAnyLengthShareALaunch) {
  using kernels::cuda::Fill;
  constexpr unsigned kMost = 9;
  using Pieces = kernels::cuda::Pieces<Fill, kMost>;
  constexpr std::size_t kTile = Pieces::kTile;
  const std::vector<std::size_t> lengths{1, kTile, 3, kTile + 1, 5 * kTile - 1, 2, 2 * kTile, 7};
  for (std::size_t count = 1; count <= lengths.size(); ++count) {
    std::vector<float> elements(11 * kTile, -1), expected = elements;
    std::vector<Fill> tasks;
    std::size_t at = 1;
    for (std::size_t p = 0; p < count; ++p) {
      const auto value = static_cast<float>(p + 1);
      tasks.push_back({{elements.data() + at, ElementType::float32}, lengths[p], value});
      std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(at), lengths[p], value);
      at += lengths[p] + 1;
    }
    Machine machine(GetParam());
    machine.launch<Pieces>(3, Pieces::of(tasks));
    EXPECT_EQ(elements, expected) << count << " pieces";
  }
}

}  // namespace
}  // namespace winnow::tests
