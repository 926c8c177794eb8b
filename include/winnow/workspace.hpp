// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)

namespace winnow {

/// Where a Workspace gets its blocks from.
struct MemorySource {
  std::byte* (*allocate)(std::size_t bytes);    ///< uninitialised; throws where there is none
  void (*release)(std::byte* memory) noexcept;  ///< nothing that is enqueued uses it any more
  std::size_t alignment = 64;  ///< of blocks, and of what is taken: a power of two from 64 on
  bool is_device = false;      ///< memory of a device, for Place::cuda alone
};

/// Scratch memory that kernels and schedules borrow from, so that nothing is allocated after the
/// first step. A stack: memory is taken upwards and given back by a Scope. Blocks are uninitialised
/// and aligned to alignment(); those of 2 MiB and more ask for huge pages. When the outermost Scope
/// ends, several blocks of the host's memory become one, so the next pass of the same size
/// allocates nothing. Not thread-safe: one Workspace belongs to one rank's calls.
/// Of device memory (kernels/cuda/memory.hpp): the host may neither read nor write what it takes,
/// so nothing of its own goes there: no lists, no headers, no frames. What a Scope gives back may
/// still be in use by what is enqueued, so all of it is used on one stream. Blocks come and never
/// go, and a pass that takes the same sizes gets the same addresses: a CUDA graph that is captured
/// after a first step stays true.
class Workspace {
 public:
  /// Of the host's memory.
  Workspace();
  explicit Workspace(const MemorySource& source);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  /// Uninitialised room for `count` objects of a trivial type, valid until its Scope ends.
  template <class T>
  std::span<T> take(std::size_t count) {
    static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= 64);
    return {reinterpret_cast<T*>(take_bytes(count * sizeof(T))), count};
  }

  /// Gives back, at its end, everything that was taken since its start.
  class Scope {
   public:
    explicit Scope(Workspace& workspace) : workspace_(workspace), mark_(workspace.enter()) {}
    ~Scope() { workspace_.leave(mark_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Workspace& workspace_;
    std::pair<std::size_t, std::size_t> mark_;
  };

  /// Sees to it that `bytes`, each size that is taken rounded up to alignment(), can be taken from
  /// here on without another allocation: for scratch whose size differs from step to step, below a
  /// bound.
  void reserve(std::size_t bytes) {
    const Scope scope(*this);
    (void)take_bytes(bytes);
  }

  /// Makes one block of several, as the end of the outermost Scope does of the host's memory by
  /// itself. Of device memory: its stream is idle, and no graph that has captured an address lives.
  /// UsageError within a Scope.
  void compact();

  /// Never frees memory again, not even at the end: for scratch that a transport may still read or
  /// write after a failure.
  void abandon() noexcept { abandoned_ = true; }

  /// Blocks allocated so far; constant from the second step on.
  std::uint64_t allocations() const noexcept { return allocations_; }
  /// Bytes held.
  std::size_t capacity() const noexcept;
  /// Of all that is taken, in bytes.
  std::size_t alignment() const noexcept { return source_.alignment; }
  bool is_device() const noexcept { return source_.is_device; }

 private:
  struct Block {
    std::byte* memory;
    std::size_t bytes;
    std::size_t used;
  };
  std::byte* take_bytes(std::size_t bytes);
  std::pair<std::size_t, std::size_t> enter();
  void leave(std::pair<std::size_t, std::size_t> mark) noexcept;
  void add_block(std::size_t bytes);
  void merge_blocks() noexcept;
  void release() noexcept;

  MemorySource source_;
  std::vector<Block> blocks_;
  std::size_t current_ = 0;  // the block that memory is taken from
  int depth_ = 0;            // Scopes open now
  std::uint64_t allocations_ = 0;
  bool abandoned_ = false;
};

}  // namespace winnow

#pragma GCC visibility pop
