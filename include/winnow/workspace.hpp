// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>
#include <winnow/cxx20.hpp>

#pragma GCC visibility push(default)

namespace winnow {

/// Where a Workspace allocates its blocks.
struct MemorySource {
  std::byte* (*allocate)(std::size_t bytes);    ///< uninitialised; throws if there is no memory
  void (*release)(std::byte* memory) noexcept;  ///< called when nothing enqueued uses the memory
                                                ///< any more
  std::size_t alignment = 64;  ///< of blocks and of taken memory: a power of two, at least 64
  bool is_device = false;      ///< device memory, for Place::cuda only
};

/// Registers memory with what moves messages (Transport::registrar). The registration lasts as long
/// as the result, which must end before the memory does; its end does not throw.
using MemoryRegistrar = std::function<std::shared_ptr<void>(std::span<std::byte> memory)>;

/// Scratch memory for kernels and schedules, so that nothing is allocated after the first step. A
/// stack: a Scope gives back what was taken in it. Memory is uninitialised and aligned to
/// alignment(); blocks of 2 MiB and more ask for huge pages. When the outermost Scope ends, several
/// blocks of host memory become one, so the next pass of the same size allocates nothing. Not
/// thread-safe: one Workspace belongs to one rank's calls.
///
/// Device memory (kernels/cuda/memory.hpp): the host cannot access it, so no lists, headers or
/// frames go there. Enqueued work may still use what a Scope has given back, so all of it is used
/// on one stream. Blocks are never freed, and a pass that takes the same sizes gets the same
/// addresses, so a CUDA graph captured after a first step stays valid.
class Workspace {
 public:
  /// Takes host memory.
  Workspace();
  explicit Workspace(const MemorySource& source);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  /// Space for `count` objects of a trivial type, uninitialised, valid until its Scope ends.
  template <class T>
  std::span<T> take(std::size_t count) {
    static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= 64);
    return {reinterpret_cast<T*>(take_bytes(count * sizeof(T))), count};
  }

  /// Spaces for `count` objects of each of several types, taken as one.
  template <class First, class Second, class... More>
  std::tuple<std::span<First>, std::span<Second>, std::span<More>...> take(std::size_t count) {
    std::byte* next = take_bytes(aligned(count * sizeof(First)) + aligned(count * sizeof(Second)) +
                                 (std::size_t{0} + ... + aligned(count * sizeof(More))));
    const auto take_next = [&]<class T>(std::type_identity<T>) {
      static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= 64);
      auto* const begin =
          reinterpret_cast<T*>(std::exchange(next, next + aligned(count * sizeof(T))));
      return std::span<T>(begin, count);
    };
    return {take_next(std::type_identity<First>()), take_next(std::type_identity<Second>()),
            take_next(std::type_identity<More>())...};
  }

  /// At its end, gives back everything taken since its start.
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

  /// Makes sure that `bytes` (each taken size rounded up to alignment()) can be taken without
  /// another allocation: for scratch whose size varies from step to step below a bound.
  void reserve(std::size_t bytes) {
    const Scope scope(*this);
    (void)take_bytes(bytes);
  }

  /// Blocks allocated so far; constant from the second step on.
  std::uint64_t allocations() const noexcept { return allocations_; }
  /// Pieces of memory taken so far, a layout of several as one.
  std::uint64_t takes() const noexcept { return takes_; }
  /// Bytes held.
  std::size_t capacity() const noexcept;
  /// Alignment of everything taken, in bytes.
  std::size_t alignment() const noexcept { return source_.alignment; }
  bool is_device() const noexcept { return source_.is_device; }

  /// Winnow's own: see kernels/exec/workspace_internal.hpp.
  struct [[gnu::visibility("hidden")]] Internal;

 private:
  struct Block {
    std::byte* memory;
    std::size_t bytes;
    std::size_t used;
    std::shared_ptr<void> registration = {};
  };
  std::size_t aligned(std::size_t bytes) const {
    return (bytes + source_.alignment - 1) / source_.alignment * source_.alignment;
  }
  std::byte* take_bytes(std::size_t bytes) {
    bytes = aligned(bytes);
    ++takes_;
    if (current_ == blocks_.size() || blocks_[current_].bytes - blocks_[current_].used < bytes) {
      find_block(bytes);
    }
    Block& block = blocks_[current_];
    std::byte* const memory = block.memory + block.used;
    block.used += bytes;
    return memory;
  }
  std::pair<std::size_t, std::size_t> enter() {
    ++depth_;
    return {current_, current_ < blocks_.size() ? blocks_[current_].used : 0};
  }
  void leave(std::pair<std::size_t, std::size_t> mark) noexcept {
    current_ = mark.first;
    if (current_ < blocks_.size()) blocks_[current_].used = mark.second;
    if (--depth_ == 0 && blocks_.size() > 1 && !source_.is_device) merge_blocks();
  }
  void find_block(std::size_t bytes);
  void add_block(std::size_t bytes);
  void merge_blocks() noexcept;
  void release() noexcept;

  MemorySource source_;
  MemoryRegistrar registrar_;
  std::vector<Block> blocks_;
  std::size_t current_ = 0;  // the block that memory is taken from
  int depth_ = 0;            // Scopes open now
  std::vector<std::unique_ptr<Workspace>> lent_;
  std::uint64_t allocations_ = 0, takes_ = 0;
  bool abandoned_ = false;
};

}  // namespace winnow

#pragma GCC visibility pop
