// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "topology/processors.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace winnow {
namespace {

namespace fs = std::filesystem;

/// Control groups as the kernel shows them, in a folder of their own.
class ControlGroups : public testing::Test {
 protected:
  void TearDown() override { fs::remove_all(root_); }

  void write(const fs::path& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text << "\n";
  }
  Processors read(const std::string& groups) {
    write("self", groups);
    Processors found;
    found.read_quota(root_, root_ / "self");
    return found;
  }

 private:
  fs::path root_ =
      fs::temp_directory_path() / ("winnow_control_groups_" + std::to_string(::getpid()));
};

TEST_F(ControlGroups, TheLeastQuotaOfAGroupAndThoseAboveCounts) {
  write("job/cpu.max", "150000 100000");
  write("job/task/cpu.max", "800000 100000");
  const Processors task = read("0::/job/task");
  EXPECT_EQ(task.quota, 1.5);
  const Processors other = read("0::/job/other");
  EXPECT_EQ(other.quota, 1.5);
  EXPECT_EQ(task.quota_id, other.quota_id);  // it is the job's, so they share it
}

TEST_F(ControlGroups, AnOwnQuotaIsNotShared) {
  write("job/a/cpu.max", "200000 100000");
  write("job/b/cpu.max", "200000 100000");
  EXPECT_NE(read("0::/job/a").quota_id, read("0::/job/b").quota_id);
}

TEST_F(ControlGroups, AContainerSeesItsOwnGroupAtTheMount) {
  write("cpu.max", "50000 100000");
  EXPECT_EQ(read("0::/system.slice/of/the/host").quota, 0.5);
}

TEST_F(ControlGroups, VersionOneHasAFolderForEachController) {
  write("cpu,cpuacct/box/cpu.cfs_quota_us", "300000");
  write("cpu,cpuacct/box/cpu.cfs_period_us", "100000");
  EXPECT_EQ(read("5:memory:/box\n4:cpu,cpuacct:/box\n0::/").quota, 3);
}

TEST_F(ControlGroups, NoLimitIsInfinite) {
  EXPECT_TRUE(std::isinf(read("0::/").quota));
  write("a/cpu.max", "max 100000");
  EXPECT_TRUE(std::isinf(read("0::/a").quota));
  write("cpu/a/cpu.cfs_quota_us", "-1");
  write("cpu/a/cpu.cfs_period_us", "100000");
  EXPECT_TRUE(std::isinf(read("4:cpu:/a").quota));
}

TEST_F(ControlGroups, WhatCannotBeReadIsNoLimit) {
  for (const char* text : {"", " ", "x y", "100000", "100000 0", "0 100000", "-5 100000"}) {
    write("a/cpu.max", text);
    EXPECT_TRUE(std::isinf(read("0::/a").quota)) << text;
  }
  for (const char* groups : {"", ":", "::", "0", "no colon", "0::", "0::a/../.."}) {
    EXPECT_TRUE(std::isinf(read(groups).quota)) << groups;
  }
}

TEST(Processors, RanksShareCoresAndQuota) {
  Processors mine{.cores = 8};
  EXPECT_EQ(mine.threads(1, 1), 8);
  EXPECT_EQ(mine.threads(3, 1), 2);
  EXPECT_EQ(mine.threads(16, 16), 1);
  mine.quota = 3.5;
  EXPECT_EQ(mine.threads(1, 1), 3);
  EXPECT_EQ(mine.threads(1, 2), 1);
  EXPECT_EQ(mine.threads(4, 1), 2);
  mine.quota = 0.25;
  EXPECT_EQ(mine.threads(1, 1), 1);
}

TEST(Processors, HeedOmpNumThreads) {
  const auto wanted = [](const char* text) {
    ::setenv("OMP_NUM_THREADS", text, 1);
    const Processors mine = Processors::of_this_process();
    ::unsetenv("OMP_NUM_THREADS");
    return mine.wanted;
  };
  EXPECT_EQ(wanted("3"), 3);
  EXPECT_EQ(wanted("2,4"), 2);
  for (const char* text : {"", "0", "-1", "many"}) EXPECT_EQ(wanted(text), 0) << text;
  EXPECT_EQ((Processors{.cores = 8, .wanted = 3}.threads(1, 1)), 3);
  EXPECT_EQ((Processors{.cores = 2, .wanted = 3}.threads(1, 1)), 2);
}

TEST(Processors, OfThisProcessAreAtLeastOneAndNamed) {
  const Processors mine = Processors::of_this_process();
  EXPECT_GE(mine.cores, 1);
  EXPECT_GT(mine.quota, 0);
  EXPECT_EQ(mine.cores_id, Processors::of_this_process().cores_id);
  EXPECT_EQ(mine.quota_id, Processors::of_this_process().quota_id);
}

}  // namespace
}  // namespace winnow
