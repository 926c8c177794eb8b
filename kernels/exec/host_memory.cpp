// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/exec/host_memory.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

namespace winnow::kernels {

namespace {
constexpr std::size_t kHugePage = std::size_t{2} << 20;

constexpr std::size_t round_up(std::size_t bytes, std::size_t to) {
  return (bytes + to - 1) / to * to;
}
}  // namespace

std::byte* allocate_host(std::size_t bytes) {
  const std::size_t alignment = bytes >= kHugePage ? kHugePage : 64;
  const std::size_t rounded = round_up(bytes == 0 ? 1 : bytes, alignment);
  void* memory = std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  // Advice only: where huge pages are off, small ones serve.
  if (alignment == kHugePage) (void)::madvise(memory, rounded, MADV_HUGEPAGE);
  return static_cast<std::byte*>(memory);
}

void free_host(std::byte* memory) noexcept {
  std::free(memory);
}

}  // namespace winnow::kernels
