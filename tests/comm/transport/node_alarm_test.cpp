// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/mpi/node_alarm.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

namespace winnow::tests {
namespace {

using comm::NodeAlarm;

/// What a child process returns.
template <class Body>
int in_another_process(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(NodeAlarm, IsFoundAndRaisedByAnotherProcess) {
  NodeAlarm made = NodeAlarm::make();
  ASSERT_TRUE(made);
  EXPECT_FALSE(made.raised());
  const NodeAlarm::Address address = made.address();
  const auto raise = [&] {
    NodeAlarm opened = NodeAlarm::open(address);
    if (!opened || opened.raised()) return 1;
    opened.raise();
    return opened.raised() ? 0 : 2;
  };
  EXPECT_EQ(in_another_process(raise), 0);
  EXPECT_TRUE(made.raised());
  EXPECT_FALSE(NodeAlarm::make().raised());
}

TEST(NodeAlarm, OutlivesItsMakersDescriptor) {
  NodeAlarm made = NodeAlarm::make();
  ASSERT_TRUE(made);
  NodeAlarm opened = NodeAlarm::open(made.address());
  ASSERT_TRUE(opened);
  made.close_to_others();
  NodeAlarm moved = std::move(made);
  EXPECT_FALSE(made);  // NOLINT(bugprone-use-after-move)
  moved.raise();
  EXPECT_TRUE(opened.raised());
  moved = NodeAlarm();
  EXPECT_TRUE(opened.raised());
}

TEST(NodeAlarm, NothingElseIsTakenForIt) {
  NodeAlarm made = NodeAlarm::make();
  ASSERT_TRUE(made);
  NodeAlarm::Address wrong = made.address();
  wrong.token ^= 1;
  EXPECT_FALSE(NodeAlarm::open(wrong));
  wrong = made.address();
  wrong.descriptor = 0;
  EXPECT_FALSE(NodeAlarm::open(wrong));
  EXPECT_FALSE(NodeAlarm::open({}));
  const NodeAlarm::Address closed = made.address();
  made.close_to_others();
  EXPECT_FALSE(NodeAlarm::open(closed));
  EXPECT_FALSE(NodeAlarm::open(made.address()));
}

}  // namespace
}  // namespace winnow::tests
