// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/memory_ops.cuh"

#include <gtest/gtest.h>

#include "tests/kernels/cases/memory_ops_cases.hpp"
#include "tests/model/machine.hpp"
#include "tests/model/orders.hpp"

namespace winnow::tests {
namespace {

class MemoryOpsOnModel : public testing::TestWithParam<SimtOrder> {};
INSTANTIATE_TEST_SUITE_P(Orders, MemoryOpsOnModel, testing::ValuesIn(simt_orders()));

TEST_P(MemoryOpsOnModel, FillEqualsReference) {
  Machine machine(GetParam());
  expect_fill_equals_reference([&](std::span<float> elements, float value) {
    machine.launch<kernels::cuda::Fill>(2, {elements.data(), elements.size(), value});
  });
}

}  // namespace
}  // namespace winnow::tests
