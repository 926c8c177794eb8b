// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <winnow/workspace.hpp>

namespace winnow::kernels {

/// 64-byte aligned, uninitialised host memory; from 2 MiB on it is 2 MiB aligned and asks for huge
/// pages (a pass over gradient and residual otherwise spends a tenth of its time in page walks).
/// Throws std::bad_alloc.
std::byte* allocate_host(std::size_t bytes);
void free_host(std::byte* memory) noexcept;

inline constexpr MemorySource kHostMemory{allocate_host, free_host};

/// Owns zero-initialised host memory for `T`; empty by default.
template <class T>
class HostArray {
 public:
  HostArray() = default;
  explicit HostArray(std::size_t count)
      : memory_(reinterpret_cast<T*>(allocate_host(count * sizeof(T)))), count_(count) {
    std::memset(static_cast<void*>(memory_.get()), 0, count * sizeof(T));
  }

  bool empty() const { return count_ == 0; }
  std::size_t size() const { return count_; }
  std::span<T> span() { return {memory_.get(), count_}; }
  std::span<const T> span() const { return {memory_.get(), count_}; }

 private:
  struct Free {
    void operator()(T* memory) const noexcept { free_host(reinterpret_cast<std::byte*>(memory)); }
  };
  std::unique_ptr<T, Free> memory_;
  std::size_t count_ = 0;
};

}  // namespace winnow::kernels
