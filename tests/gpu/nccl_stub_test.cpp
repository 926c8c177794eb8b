// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <winnow/error.hpp>
#include <winnow/nccl.hpp>

namespace winnow {
namespace {

TEST(BuiltWithoutNccl, TransportsSaySo) {
  const auto refuses = testing::ThrowsMessage<UsageError>(testing::HasSubstr("built without NCCL"));
  const auto other = local_transports(1);
  EXPECT_THAT([&] { (void)nccl_transport(*other[0], Deadline::never()); }, refuses);
  EXPECT_THAT([&] { (void)nccl_transport(NcclMeeting{.path = "x"}, Deadline::never()); }, refuses);
  EXPECT_THAT([&] { (void)nccl_transport(nullptr, 0); }, refuses);
  EXPECT_FALSE(nccl_available());
}

}  // namespace
}  // namespace winnow
