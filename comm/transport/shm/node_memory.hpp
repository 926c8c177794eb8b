// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/transport/shm/shared_mapping.hpp"

namespace winnow::comm {

/// Memory that processes of one machine share, zero at first. One process makes it; the others open
/// it by its address while its maker has it open to others. Pages that nobody touches take nothing.
class [[gnu::visibility("default")]] NodeMemory {
 public:
  /// Where others of the machine find the memory. With other namespaces of processes, or other
  /// users, they find nothing, or something else without the token.
  struct Address {
    std::uint64_t token = 0;
    pid_t process = 0;
    int descriptor = -1;  ///< of that process; -1: there is no memory
  };

  NodeMemory() = default;  // none
  NodeMemory(NodeMemory&& other) noexcept;
  NodeMemory& operator=(NodeMemory&& other) noexcept;
  ~NodeMemory();

  /// None if the system gives none.
  static NodeMemory make(std::size_t bytes);
  /// None if there is none of this size at the address.
  static NodeMemory open(const Address& address, std::size_t bytes);

  explicit operator bool() const { return static_cast<bool>(mapping_); }
  /// 64-byte aligned.
  std::span<std::byte> bytes() const;
  /// The address by which others open this memory. For the process that made it.
  Address address() const;
  void close_to_others() noexcept;

 private:
  NodeMemory(Socket file, std::size_t size) noexcept;

  SharedMapping mapping_;  // the token, and from kBegin on the memory
  Socket file_;            // closed unless it is open to others
};

}  // namespace winnow::comm
