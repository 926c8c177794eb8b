// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>
#include <winnow/error.hpp>

#include "kernels/dispatch/bodies.hpp"
#include "lab/reference/place.hpp"

namespace winnow::tests {
namespace {

TEST(Dispatch, ConditionsHoldOnTheHostToo) {
  std::array<std::uint32_t, 2> words{0, 3};
  for (const Place place : {lab::kReference, Place::host}) {
    for (const bool any : {true, false}) {
      for (const std::uint32_t count : {1U, 2U}) {
        std::vector<float> elements{1, 2};
        const Condition condition{.words = words.data(), .count = count, .any = any};
        kernels::scale({.place = place, .condition = condition}, elements, 2);
        const bool one_is_set = count == 2;
        EXPECT_EQ(elements[1], any == one_is_set ? 4 : 2) << "count " << count << ", any " << any;
      }
    }
    std::vector<float> elements{1, 2};
    kernels::scale({.place = place}, elements, 2);
    EXPECT_EQ(elements[1], 4);
  }
}

TEST(Dispatch, ABuildWithoutCudaSaysSo) {
  if (kernels::kCuda.scale != nullptr) GTEST_SKIP() << "this build has CUDA";
  const auto bodies = std::as_bytes(std::span(&kernels::kCuda, 1));
  EXPECT_TRUE(std::ranges::all_of(bodies, [](std::byte byte) { return byte == std::byte{}; }));
  EXPECT_THROW((void)kernels::feedback_select_scratch({.place = Place::cuda}, {}), UsageError);
  std::vector<float> elements{1, 2};
  EXPECT_THAT([&] { kernels::scale({.place = Place::cuda}, elements, 2); },
              testing::ThrowsMessage<UsageError>(testing::HasSubstr("built without CUDA")));
  EXPECT_EQ(elements[1], 2);
}

TEST(Dispatch, AWorkspaceOfADeviceIsNotTheHosts) {
  const MemorySource device{.allocate = nullptr, .release = nullptr, .is_device = true};
  Workspace workspace(device);
  std::vector<float> elements{1, 2};
  EXPECT_THAT([&] { kernels::scale({.workspace = &workspace}, elements, 2); },
              testing::ThrowsMessage<UsageError>(testing::HasSubstr("device_workspace")));
}

}  // namespace
}  // namespace winnow::tests
