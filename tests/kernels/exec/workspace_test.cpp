// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "winnow/workspace.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>
#include <winnow/error.hpp>

#include "kernels/cuda/device_exec.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/exec/host_memory.hpp"
#include "kernels/exec/workspace_internal.hpp"
#include "lab/reference/place.hpp"

namespace winnow::tests {
namespace {

using Internal = Workspace::Internal;

/// A source that counts; the workspace uses it as it would use a device's.
struct Counted {
  static inline int held = 0, allocations = 0, left = 0;

  static std::byte* allocate(std::size_t bytes) {
    if (left-- <= 0) throw std::bad_alloc();
    ++held;
    ++allocations;
    return static_cast<std::byte*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  }
  static void release(std::byte* memory) noexcept {
    --held;
    std::free(memory);
  }
  static constexpr MemorySource kSource{allocate, release, 256, true};
  static constexpr MemorySource kOfHost{allocate, release, 256, false};

  explicit Counted(int most) {
    held = allocations = 0;
    left = most;
  }
};

/// Takes a little memory, then more than any block holds, and returns the addresses.
std::vector<const std::byte*> pass(Workspace& workspace) {
  std::vector<const std::byte*> taken;
  const Workspace::Scope scope(workspace);
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{300'000}, std::size_t{7}}) {
    const auto memory = workspace.take<std::byte>(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % 256, 0U);
    memory.front() = memory.back() = std::byte{1};
    taken.push_back(memory.data());
  }
  return taken;
}

TEST(WorkspaceSource, IsAskedInTheFirstPassAloneAndGetsAllBack) {
  const Counted counted(100);
  {
    Workspace workspace(Counted::kOfHost);
    EXPECT_EQ(Counted::allocations, 0);
    pass(workspace);
    EXPECT_EQ(Counted::held, 1);  // the workspace merges its blocks into one
    const std::uint64_t first = workspace.allocations();
    EXPECT_EQ(first, static_cast<std::uint64_t>(Counted::allocations));
    EXPECT_GT(first, 1U);
    for (int step = 0; step < 3; ++step) pass(workspace);
    EXPECT_EQ(workspace.allocations(), first);
  }
  EXPECT_EQ(Counted::held, 0);
}

/// While the workspace grows, the memory that a graph has captured keeps its addresses, and nothing
/// waits for the device. Each block is as large as the request that made it.
TEST(WorkspaceSource, OfADeviceGetsNothingBackWhileItGrows) {
  const Counted counted(100);
  {
    Workspace workspace(Counted::kSource);
    EXPECT_EQ(workspace.alignment(), 256U);
    const auto captured = pass(workspace);
    constexpr std::size_t kCaptured = 2 * (64U << 10) + 300'032U;
    EXPECT_EQ(Counted::held, 3);
    EXPECT_EQ(workspace.capacity(), kCaptured);
    EXPECT_EQ(pass(workspace), captured);
    {
      const Workspace::Scope scope(workspace);
      pass(workspace);
      (void)workspace.take<std::byte>(2'000'000);
    }
    workspace.reserve(3'000'000);
    EXPECT_EQ(workspace.capacity(), kCaptured + 2'000'128U + 3'000'064U);
    for (int step = 0; step < 3; ++step) EXPECT_EQ(pass(workspace), captured);
    EXPECT_EQ(Counted::held, Counted::allocations);
  }
  EXPECT_EQ(Counted::held, 0);
}

TEST(WorkspaceSource, ThatHasNoMoreLeavesWhatThereWas) {
  const Counted counted(1);
  Workspace workspace(Counted::kSource);
  for (int step = 0; step < 2; ++step) {
    const Workspace::Scope scope(workspace);
    EXPECT_EQ(workspace.take<float>(10).size(), 10U);
    EXPECT_THROW((void)workspace.take<float>(1'000'000), std::bad_alloc);
  }
  EXPECT_EQ(workspace.allocations(), 1U);
  EXPECT_EQ(Counted::held, 1);
}

/// Notes which ranges are registered. Blocks are freed with an 'f' in `log`, after a 'd' where
/// their registration ends.
struct Registered {
  static inline std::string log;
  static void release(std::byte* memory) noexcept {
    log += 'f';
    Counted::release(memory);
  }
  static constexpr MemorySource kSource{Counted::allocate, release, 256, true};

  MemoryRegistrar registrar() {
    return [this](std::span<std::byte> memory) -> std::shared_ptr<void> {
      if (fails) throw CommError("no");
      bytes.emplace(memory.data(), memory.size());
      return {memory.data(), [this](std::byte* begin) {
                log += 'd';
                bytes.erase(begin);
              }};
    };
  }
  std::size_t total() const {
    std::size_t sum = 0;
    for (const auto& [memory, size] : bytes) sum += size;
    return sum;
  }

  Registered() { log.clear(); }
  std::map<std::byte*, std::size_t> bytes;
  bool fails = false;
};

TEST(WorkspaceRegistrar, IsToldOfEachBlockUntilThatIsFreed) {
  const Counted counted(100);
  Registered registered;
  {
    Workspace workspace(Registered::kSource);
    workspace.reserve(1);
    Internal::set_registrar(workspace, registered.registrar());
    EXPECT_EQ(registered.total(), workspace.capacity());
    for (int step = 0; step < 2; ++step) pass(workspace);
    EXPECT_EQ(registered.bytes.size(), 3U);
    EXPECT_EQ(registered.total(), workspace.capacity());
  }
  EXPECT_EQ(Registered::log, "dfdfdf");
}

TEST(WorkspaceRegistrar, ThatIsTakenAwayEndsWhatItRegistered) {
  const Counted counted(100);
  Registered registered;
  Workspace workspace(Registered::kSource);
  Internal::set_registrar(workspace, registered.registrar());
  pass(workspace);
  EXPECT_EQ(registered.bytes.size(), 3U);
  Internal::set_registrar(workspace, {});
  EXPECT_EQ(Registered::log, "ddd");
  workspace.reserve(3'000'000);
  EXPECT_TRUE(registered.bytes.empty());
}

TEST(WorkspaceRegistrar, ThatThrowsLeavesNoBlock) {
  const Counted counted(100);
  Registered registered;
  Workspace workspace(Registered::kSource);
  Internal::set_registrar(workspace, registered.registrar());
  registered.fails = true;
  EXPECT_THROW(workspace.reserve(1), CommError);
  EXPECT_EQ(workspace.capacity(), 0U);
  EXPECT_EQ(Counted::held, 0);
  registered.fails = false;
  workspace.reserve(1);
  EXPECT_EQ(registered.total(), workspace.capacity());
}

TEST(WorkspaceRegistrar, MakesOtherMemoryForeign) {
  const Counted counted(100);
  Registered registered;
  const std::byte other{};
  Workspace workspace(Registered::kSource);
  EXPECT_FALSE(Internal::is_foreign(workspace, &other));
  Internal::set_registrar(workspace, registered.registrar());
  EXPECT_TRUE(Internal::is_foreign(workspace, &other));
  const Workspace::Scope scope(workspace);
  const auto taken = workspace.take<std::byte>(100);
  (void)workspace.take<std::byte>(1'000'000);
  EXPECT_FALSE(Internal::is_foreign(workspace, taken.data()));
  EXPECT_FALSE(Internal::is_foreign(workspace, taken.data() + 99));
  EXPECT_TRUE(Internal::is_foreign(workspace, &other));
}

TEST(WorkspaceLent, IsPartOfAnotherAndDoesNotGrow) {
  Workspace workspace;
  std::uint64_t allocations = 0;
  for (int pass = 0; pass < 3; ++pass) {
    const Workspace::Scope scope(workspace);
    std::vector<const std::byte*> taken;
    for (const auto& lent : Internal::lend(workspace, 3, 256)) {
      const Workspace::Scope all(*lent);
      for (int again = 0; again < 2; ++again) {
        const Workspace::Scope some(*lent);
        const auto memory = lent->take<std::byte>(200);
        memory.front() = memory.back() = std::byte{1};
        taken.push_back(memory.data());
        EXPECT_THROW((void)lent->take<std::byte>(1), std::bad_alloc);
      }
    }
    EXPECT_EQ(taken[0], taken[1]);
    EXPECT_EQ(taken[2], taken[0] + 256);
    EXPECT_EQ(taken[4], taken[0] + 512);
    if (pass == 0) allocations = workspace.allocations();
    EXPECT_EQ(workspace.allocations(), allocations);
  }
}

TEST(WorkspaceSource, OfAnAbandonedOneGetsNothingBack) {
  const Counted counted(100);
  {
    Workspace workspace(Counted::kSource);
    pass(workspace);
    Internal::abandon(workspace);
  }
  EXPECT_EQ(Counted::held, 3);
}

/// A kernel's body would touch memory of another place than its own.
TEST(WorkspaceSource, OfADeviceIsNoneForLists) {
  const Counted counted(100);
  Workspace device(Counted::kSource), host;
  EXPECT_TRUE(device.is_device());
  EXPECT_FALSE(host.is_device());
  std::vector<float> elements(3, 1);
  const auto refuses =
      testing::ThrowsMessage<UsageError>(testing::HasSubstr("Exec::workspace must be of the host"));
  for (const Place place : {Place::host, lab::kReference, Place::cuda}) {
    EXPECT_THAT([&] { kernels::scale({.place = place, .workspace = &device}, elements, 2); },
                refuses);
  }
  EXPECT_NO_THROW(kernels::scale({.workspace = &host}, elements, 2));
  EXPECT_EQ(elements, std::vector<float>(3, 2));
}

/// Every launch and every clear on a device makes these demands on its Exec.
TEST(WorkspaceSource, OfTheHostIsRefusedByADeviceAndSoIsTheDefaultStream) {
  using kernels::cuda::expect_device;
  const Counted counted(100);
  Workspace device(Counted::kSource), host;
  int stream = 0;
  const auto wants = [](const char* what) {
    return testing::ThrowsMessage<UsageError>(testing::HasSubstr(what));
  };
  EXPECT_THAT([] { expect_device({}); }, wants("pass Place::cuda"));
  EXPECT_THAT([&] { expect_device({.stream = &stream}); }, wants("pass Place::cuda"));
  EXPECT_THAT([] { expect_device({.place = Place::cuda}); }, wants("not null"));
  Exec exec{.place = Place::cuda, .stream = &stream, .workspace = &host};
  EXPECT_NO_THROW(expect_device(exec));
  exec.device_workspace = &host;
  EXPECT_THAT([&] { expect_device(exec); }, wants("kDeviceMemory"));
  exec.device_workspace = &device;
  EXPECT_NO_THROW(expect_device(exec));
}

}  // namespace
}  // namespace winnow::tests
