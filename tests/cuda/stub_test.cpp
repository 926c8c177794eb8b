// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>
#include <winnow/error.hpp>

#include "kernels/residual_add.hpp"

namespace winnow {
namespace {

TEST(BuiltWithoutCuda, DeviceMemoryIsRefusedAndUntouched) {
  std::vector<float> residual{1, 2}, gradient{3, 4};
  EXPECT_THAT([&] { kernels::residual_add(Exec{.place = Place::cuda}, residual, gradient); },
              testing::ThrowsMessage<UsageError>(testing::HasSubstr("built without CUDA")));
  EXPECT_EQ(residual, (std::vector<float>{1, 2}));
}

}  // namespace
}  // namespace winnow
