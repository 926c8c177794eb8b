// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Errors of the NCCL transport before ranks meet, with and without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/nccl.hpp>

#include "tests/harness/device.hpp"

namespace winnow::tests {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

Deadline soon() {
  return Deadline::after(std::chrono::seconds(60));
}

std::string fresh_path() {
  std::string name = testing::TempDir() + "winnow_meeting_XXXXXX";
  EXPECT_NE(::mkdtemp(name.data()), nullptr);
  return name + "/id";
}

TEST(NcclUsage, ArgumentsAreCheckedFirst) {
  const auto expect_refused = [](const NcclMeeting& meeting, const char* why) {
    EXPECT_THAT([&] { (void)nccl_transport(meeting, soon()); },
                ThrowsMessage<UsageError>(HasSubstr(why)));
  };
  expect_refused({.path = "x", .rank = 2, .size = 2}, "rank 2 of 2");
  expect_refused({.path = "x", .rank = -1, .size = 2}, "rank -1 of 2");
  expect_refused({.path = "x", .rank = 0, .size = 0}, "rank 0 of 0");
  expect_refused({.path = "", .rank = 0, .size = 1}, "path of a file");
  EXPECT_THAT([] { (void)nccl_transport(nullptr, 0); },
              ThrowsMessage<UsageError>(HasSubstr("no communicator")));
}

/// For a machine without a GPU; these tests need nothing else.
class NcclWithoutDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (why_no_device().empty()) GTEST_SKIP() << "there is a CUDA device";
  }
};

TEST_F(NcclWithoutDevice, SaysSoOnEveryRankOfAnotherTransport) {
  const auto others = local_transports(3);
  std::vector<std::thread> ranks;
  for (const auto& other : others) {
    ranks.emplace_back([&] {
      EXPECT_THAT([&] { (void)nccl_transport(*other, soon()); },
                  ThrowsMessage<CudaError>(HasSubstr("needs a GPU")));
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST_F(NcclWithoutDevice, SaysSoAtAMeetingAndTellsTheOthers) {
  const std::string path = fresh_path();
  EXPECT_THAT([&] { (void)nccl_transport({.path = path, .job = 5, .rank = 0, .size = 2}, soon()); },
              ThrowsMessage<CudaError>(HasSubstr("needs a GPU")));
  EXPECT_TRUE(std::filesystem::exists(path));  // with the reason, for ranks that have a GPU
  EXPECT_THAT([&] { (void)nccl_transport({.path = path, .job = 5, .rank = 1, .size = 2}, soon()); },
              ThrowsMessage<CudaError>(HasSubstr("needs a GPU")));
  std::filesystem::remove_all(std::filesystem::path(path).parent_path());
}

}  // namespace
}  // namespace winnow::tests
