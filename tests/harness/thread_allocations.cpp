// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/harness/thread_allocations.hpp"

#include <malloc.h>

#include <cstdlib>
#include <new>

namespace {

thread_local std::uint64_t allocations = 0, left = 0;
thread_local bool armed = false, failed = false;
thread_local auto failing = winnow::tests::Failing::one;

bool fails() {
  if (!armed) return false;
  if (left != 0) {
    --left;
    return false;
  }
  armed = failing == winnow::tests::Failing::all;
  failed = true;
  return true;
}

void* allocate(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  const std::size_t rounded = (bytes + alignment) / alignment * alignment;  // never 0
  if (void* memory = std::aligned_alloc(alignment, rounded)) return memory;
  throw std::bad_alloc();
}

}  // namespace

std::uint64_t winnow::tests::thread_allocations() {
  return allocations;
}

void winnow::tests::fail_allocation(std::uint64_t n, Failing which) {
  left = n;
  failing = which;
  failed = false;
  armed = true;
}

bool winnow::tests::stop_failing() {
  armed = false;
  return failed;
}

// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): the C library's are reserved
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  return fails() ? nullptr : ::memalign(alignment, bytes);
}

// The array forms call these.
void* operator new(std::size_t bytes) {
  return allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
// Would call these as well, were it not for AddressSanitizer, which has its own.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
