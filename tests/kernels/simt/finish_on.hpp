// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "kernels/cuda/finish_message.cuh"
#include "tests/kernels/cases/finish_cases.hpp"
#include "tests/model/machine.hpp"

namespace winnow::tests {

/// Runs kernels::cuda::finish_message, or a kernel like it, on the model with a few blocks.
template <class Indices>
void finish_on(Machine& machine, std::span<std::byte> message, const HeaderBytes& header,
               const Indices& indices, const kernels::PoisonSources& poison = {},
               kernels::CallStatus* status = nullptr, std::size_t padding = 0) {
  const auto task = kernels::cuda::make_finish_task({.message = message,
                                                     .header = header,
                                                     .layout = kHeaderLayout,
                                                     .poison = poison,
                                                     .status = status,
                                                     .padding = padding},
                                                    indices);
  // the library clears the checksum before its launch
  std::ranges::fill(message.subspan(kHeaderLayout.checksum_at, sizeof(std::uint64_t)),
                    std::byte{0});
  // Another message shares the launch, and neither takes the other's words.
  std::vector<std::byte> more(message.begin(), message.end());
  auto other = task;
  other.message.bytes = more.data();
  kernels::cuda::FinishMessage<Indices, 3> kernel = {};
  kernel.messages = {{task, other}, 2};
  machine.launch(4, kernel);
  EXPECT_TRUE(std::ranges::equal(message, more));
}

}  // namespace winnow::tests
