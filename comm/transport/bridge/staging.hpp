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

/// Memory, of one source, in which messages lie between the host's and a device's. It comes in
/// blocks, each with an event for the copies to or from it. They are lent in any order and used
/// again: a new one is made only where none that is free is long enough, so steps of one shape make
/// none after the first. None goes before this ends, since that would wait for the device.
class Staging {
 public:
  struct Block {
    std::span<std::byte> memory;
    kernels::cuda::Event event;
    bool lent;
  };

  /// Of the current device.
  explicit Staging(const MemorySource& source) : source_(source) {}
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// A block of `bytes` bytes or somewhat more, until it is given back.
  Block& take(std::size_t bytes);
  static void give_back(Block& block) noexcept { block.lent = false; }
  /// Never frees memory again, not even at the end: after a failure a transport may still use it.
  void abandon() noexcept { abandoned_ = true; }

 private:
  MemorySource source_;
  std::vector<std::unique_ptr<Block>> blocks_;
  bool abandoned_ = false;
};

}  // namespace winnow::comm
