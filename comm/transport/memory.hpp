// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

namespace winnow::comm {

/// No array ends behind so many bytes: systems give a process addresses below 2^47, and 2^48 at
/// most, unless it asks for others.
inline constexpr std::uint64_t kMostMemory = std::uint64_t{1} << 47;

/// Why `count` objects of `unit` bytes cannot lie at `data`, to follow their name, or empty.
inline std::string memory_error(const void* data, std::uint64_t count, std::size_t unit) {
  if (count == 0) return {};
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  if (address == 0) return " is NULL";
  // MPI_IN_PLACE as MPICH and Open MPI have it; no object lies there.
  if (address == 1 || address == UINTPTR_MAX) {
    return " is MPI_IN_PLACE, which only MPI knows: name the memory itself";
  }
  const std::uint64_t most = address < kMostMemory
                                 ? kMostMemory - address
                                 : std::min<std::uint64_t>(kMostMemory, UINTPTR_MAX - address);
  if (count > most / unit) {
    return " has a count of " + std::to_string(count) + ", which is more than memory can have";
  }
  return {};
}

}  // namespace winnow::comm
