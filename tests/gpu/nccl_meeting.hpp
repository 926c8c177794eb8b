// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <thread>
#include <winnow/nccl.hpp>
#include <winnow/transport.hpp>

#include "tests/gpu/nccl_ranks.hpp"

// What tests of an AllReducer over NCCL begin with.

namespace winnow::tests {

class AllReducerOverNccl : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_no_nccl_ranks(); !reason.empty()) GTEST_SKIP() << reason;
  }
};

/// A folder in which the ranks of a test meet.
class Meeting {
 public:
  /// Of ranks on one node, or of so many on each.
  explicit Meeting(int ranks, int per_node = 0)
      : ranks_(ranks), per_node_(per_node > 0 ? per_node : ranks) {
    EXPECT_NE(::mkdtemp(folder_.data()), nullptr);
  }
  ~Meeting() { EXPECT_EQ(::rmdir(folder_.c_str()), 0); }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  /// A transport of all ranks; another one for each job.
  std::shared_ptr<Transport> join(int rank, std::uint64_t job = 7) const {
    return nccl_transport({.path = folder_ + "/id" + std::to_string(job),
                           .job = job,
                           .rank = rank,
                           .size = ranks_,
                           .node = rank / per_node_},
                          Deadline::after(std::chrono::seconds(60)));
  }

  /// One rank may give its word, for which another one waits.
  void give_word() const { const std::ofstream word(folder_ + "/word"); }
  void await_word() const {
    while (!std::filesystem::remove(folder_ + "/word")) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  std::string folder_ = testing::TempDir() + "winnow_nccl_XXXXXX";
  int ranks_, per_node_;
};

/// How calls are made that return when they are enqueued.
struct Plan {
  const char *compressor, *schedule = "gather";

  bool has_two_levels() const { return std::string_view(schedule).starts_with("two_level:"); }
  /// Two ranks, or as many nodes of two; for doubling three, of whom one is a guest.
  int ranks() const {
    return has_two_levels() ? 4 : std::string_view(schedule) == "doubling" ? 3 : 2;
  }
  static constexpr int kPerNode = 2;
};
inline std::ostream& operator<<(std::ostream& to, const Plan& plan) {
  return to << plan.compressor << " by " << plan.schedule;
}

}  // namespace winnow::tests
