// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace winnow::tests {

/// Memory as a device gives it: 256-byte aligned, full of garbage.
class Scratch {
 public:
  explicit Scratch(std::size_t bytes) : memory_(bytes + 256, std::byte{0x5a}), bytes_(bytes) {}

  std::span<std::byte> span() {
    void* at = memory_.data();
    std::size_t room = memory_.size();
    return {static_cast<std::byte*>(std::align(256, bytes_, at, room)), bytes_};
  }

 private:
  std::vector<std::byte> memory_;
  std::size_t bytes_;
};

}  // namespace winnow::tests
