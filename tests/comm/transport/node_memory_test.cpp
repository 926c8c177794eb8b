// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/shm/node_memory.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

namespace winnow::tests {
namespace {

using comm::NodeMemory;

constexpr std::size_t kBytes = 5000;

/// What a child process returns.
template <class Body>
int in_another_process(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::byte& last_of(const NodeMemory& memory) {
  return memory.bytes().back();
}

TEST(NodeMemory, IsFoundAndWrittenByAnotherProcess) {
  const NodeMemory made = NodeMemory::make(kBytes);
  ASSERT_TRUE(made);
  ASSERT_EQ(made.bytes().size(), kBytes);
  EXPECT_EQ(last_of(made), std::byte{0});
  const NodeMemory::Address address = made.address();
  const auto write = [&] {
    const NodeMemory opened = NodeMemory::open(address, kBytes);
    if (!opened || last_of(opened) != std::byte{0}) return 1;
    last_of(opened) = std::byte{7};
    return 0;
  };
  EXPECT_EQ(in_another_process(write), 0);
  EXPECT_EQ(last_of(made), std::byte{7});
  EXPECT_EQ(last_of(NodeMemory::make(kBytes)), std::byte{0});
}

TEST(NodeMemory, OutlivesItsMakersDescriptor) {
  NodeMemory made = NodeMemory::make(kBytes);
  ASSERT_TRUE(made);
  const NodeMemory opened = NodeMemory::open(made.address(), kBytes);
  ASSERT_TRUE(opened);
  made.close_to_others();
  NodeMemory moved = std::move(made);
  EXPECT_FALSE(made);  // NOLINT(bugprone-use-after-move)
  last_of(moved) = std::byte{7};
  EXPECT_EQ(last_of(opened), std::byte{7});
  moved = NodeMemory();
  EXPECT_EQ(last_of(opened), std::byte{7});
}

TEST(NodeMemory, NothingElseIsTakenForIt) {
  NodeMemory made = NodeMemory::make(kBytes);
  ASSERT_TRUE(made);
  EXPECT_FALSE(NodeMemory::open(made.address(), kBytes + 1));
  NodeMemory::Address wrong = made.address();
  wrong.token ^= 1;
  EXPECT_FALSE(NodeMemory::open(wrong, kBytes));
  wrong = made.address();
  wrong.descriptor = 0;
  EXPECT_FALSE(NodeMemory::open(wrong, kBytes));
  EXPECT_FALSE(NodeMemory::open({}, kBytes));
  const NodeMemory::Address closed = made.address();
  made.close_to_others();
  EXPECT_FALSE(NodeMemory::open(closed, kBytes));
  EXPECT_FALSE(NodeMemory::open(made.address(), kBytes));
}

}  // namespace
}  // namespace winnow::tests
