// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>
#include <winnow/workspace.hpp>

#include "kernels/cuda/stream.hpp"

namespace winnow::comm {

/// Memory from one source that holds messages between host and device. It comes in blocks, each
/// with an event for the copies to or from it. Blocks are lent in any order and reused; a new one
/// is made only if no free one is long enough, so steps of one shape allocate nothing after the
/// first. Blocks are freed only at the end, since freeing waits for the device.
class Staging {
 public:
  struct Block {
    std::span<std::byte> memory;
    kernels::cuda::Event event;
    bool lent;
  };

  /// Gives a block back in its destructor.
  struct Loan {
    Block& block;
    ~Loan() { give_back(block); }
  };

  /// For the current device.
  explicit Staging(const MemorySource& source) : source_(source) {}
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// A block of at least `bytes` bytes, until it is given back.
  Block& take(std::size_t bytes);
  static void give_back(Block& block) noexcept { block.lent = false; }
  /// Never frees memory again, not even in the destructor: after a failure a transport may still
  /// use it.
  void abandon() noexcept { abandoned_ = true; }

 private:
  MemorySource source_;
  std::vector<std::unique_ptr<Block>> blocks_;
  bool abandoned_ = false;
};

}  // namespace winnow::comm
