// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace winnow::comm {

/// Why `count` objects of `unit` bytes cannot lie at `data`, to follow their name, or empty.
inline std::string memory_error(const void* data, std::uint64_t count, std::size_t unit) {
  if (count == 0) return {};
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  if (address == 0) return " is NULL";
  // MPI_IN_PLACE as MPICH and Open MPI have it; no object lies there.
  if (address == 1 || address == UINTPTR_MAX) {
    return " is MPI_IN_PLACE, which only MPI knows: name the memory itself";
  }
  const std::uint64_t most = UINTPTR_MAX - address;
  if (count > most / unit || count > static_cast<std::uint64_t>(PTRDIFF_MAX) / unit) {
    return " has a count of " + std::to_string(count) + ", which is more than memory can have";
  }
  return {};
}

}  // namespace winnow::comm
