// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// The memory and the errors of the model of the CUDA runtime.
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include "tests/model/cuda_model.hpp"

namespace winnow::tests {

namespace {

constexpr std::size_t kAlignment = 256;
constexpr int kGarbage = 0xff;  // NaN, or an impossible index

struct Allocation {
  std::size_t bytes;
  cudaMemoryType type;
  int device;
};

std::map<const std::byte*, Allocation> allocations;
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t allocate(void** memory, std::size_t bytes, cudaMemoryType type) {
  const Lock lock = lock_context();
  if (breaks_captures(lock)) return said(cudaErrorStreamCaptureUnsupported);
  *memory = std::aligned_alloc(kAlignment, (bytes / kAlignment + 1) * kAlignment);
  if (*memory == nullptr) return said(cudaErrorMemoryAllocation);
  std::memset(*memory, kGarbage, bytes);
  allocations[static_cast<std::byte*>(*memory)] = {bytes, type, current_device(lock)};
  return cudaSuccess;
}

cudaError_t release(void* memory, cudaMemoryType type) {
  if (memory == nullptr) return cudaSuccess;
  Lock lock = lock_context();
  const auto found = allocations.find(static_cast<std::byte*>(memory));
  if (found == allocations.end() || found->second.type != type) {
    return said(cudaErrorInvalidValue);
  }
  if (breaks_captures(lock)) return said(cudaErrorStreamCaptureUnsupported);
  const cudaError_t status = wait_for_device(lock);
  if (watch_of_frees()) watch_of_frees()(lock, found->first, found->second.bytes);
  allocations.erase(static_cast<std::byte*>(memory));
  std::free(memory);
  return status;
}

}  // namespace

cudaPointerAttributes look_up(const Lock&, const void* memory) {
  const auto* const at = static_cast<const std::byte*>(memory);
  cudaPointerAttributes found{};
  auto block = allocations.upper_bound(at);
  const bool ours = block != allocations.begin() &&
                    (--block, at < block->first + static_cast<std::ptrdiff_t>(block->second.bytes));
  found.type = ours ? block->second.type : cudaMemoryTypeUnregistered;
  found.device = ours ? block->second.device : -1;
  return found;
}

WatchOfFrees& watch_of_frees() {
  static WatchOfFrees watch;
  return watch;
}

cudaError_t said(cudaError_t status) {
  if (status != cudaSuccess) last_error = status;
  return status;
}

}  // namespace winnow::tests

using namespace winnow::tests;

// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): the library's own names
extern "C" {

cudaError_t cudaGetLastError() {
  return std::exchange(last_error, cudaSuccess);
}
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    default:
      return "an error";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  const Lock lock(model_mutex);
  return error == cudaErrorLaunchFailure ? launch_problem(lock).c_str() : "of the model";
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  return allocate(memory, bytes, cudaMemoryTypeDevice);
}
cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
  return allocate(memory, bytes, cudaMemoryTypeHost);
}
cudaError_t cudaFree(void* memory) {
  return release(memory, cudaMemoryTypeDevice);
}
cudaError_t cudaFreeHost(void* memory) {
  return release(memory, cudaMemoryTypeHost);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* found, const void* memory) {
  const Lock lock(model_mutex);
  *found = look_up(lock, memory);
  return cudaSuccess;
}

}  // extern "C"
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
