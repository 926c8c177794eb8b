// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/workspace.hpp>

#include "kernels/cuda/stream.hpp"
#include "kernels/cuda/try.hpp"

namespace winnow::kernels::cuda {

namespace detail {
/// A free that fails reports an earlier error, or the program's end. This clears it, so that later
/// calls of the runtime do not report it.
inline void forget_error(cudaError_t status) noexcept {
  if (status != cudaSuccess) (void)cudaGetLastError();
}
struct FreeDevice {
  void operator()(void* memory) const noexcept { forget_error(cudaFree(memory)); }
};
inline std::byte* allocate_device(std::size_t bytes) {
  void* memory = nullptr;
  WINNOW_CUDA_TRY(cudaMalloc(&memory, bytes));
  return static_cast<std::byte*>(memory);
}
inline void free_device(std::byte* memory) noexcept {
  FreeDevice{}(memory);
}
struct FreePinned {
  void operator()(void* memory) const noexcept { forget_error(cudaFreeHost(memory)); }
};
inline std::byte* allocate_pinned(std::size_t bytes) {
  void* memory = nullptr;
  WINNOW_CUDA_TRY(cudaMallocHost(&memory, bytes));
  return static_cast<std::byte*>(memory);
}
inline void free_pinned(std::byte* memory) noexcept {
  FreePinned{}(memory);
}
}  // namespace detail

/// Memory of the current device for a Workspace. Its release waits for the device, and may so wait
/// for ever on work that needs what the host has not yet enqueued: not within a step.
inline constexpr MemorySource kDeviceMemory{.allocate = detail::allocate_device,
                                            .release = detail::free_device,
                                            .alignment = 256,
                                            .is_device = true};

/// The host's, page-locked: copies to and from it run beside the host. Its release too waits for
/// the device.
inline constexpr MemorySource kPinnedMemory{.allocate = detail::allocate_pinned,
                                            .release = detail::free_pinned};

/// Enqueues a copy of equal sizes. Host memory is left alone until the stream has passed the copy;
/// a captured copy meets it again in each replay. From the device to memory that is not page-locked
/// the host waits until it is done, whatever stands before it in the stream.
template <class T>
void enqueue_copy(std::span<T> to, std::span<const std::type_identity_t<T>> from,
                  StreamRef stream) {
  static_assert(std::is_trivially_copyable_v<T>);
  WINNOW_EXPECTS(to.size() == from.size(), "what is copied must be as long as its place");
  if (to.empty()) return;
  WINNOW_CUDA_TRY(
      cudaMemcpyAsync(to.data(), from.data(), to.size_bytes(), cudaMemcpyDefault, stream.get()));
}

/// Owns memory of the current device for `count` objects, uninitialised; 256-byte aligned. Ending
/// one waits for the device: not within a step.
template <class T>
class DeviceArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  explicit DeviceArray(std::size_t count) : count_(count) {
    void* memory = nullptr;
    if (count > 0) WINNOW_CUDA_TRY(cudaMalloc(&memory, count * sizeof(T)));
    memory_.reset(static_cast<T*>(memory));
  }

  std::span<T> span() const { return {memory_.get(), count_}; }
  T* data() const { return memory_.get(); }

  /// Copies and waits; `host` is as long as this.
  void upload(std::span<const T> host, StreamRef stream) const {
    enqueue_copy(span(), host, stream);
    stream.synchronize();
  }
  std::vector<T> download(StreamRef stream) const {
    std::vector<T> host(count_);
    enqueue_copy(std::span(host), span(), stream);
    stream.synchronize();
    return host;
  }

 private:
  std::unique_ptr<T, detail::FreeDevice> memory_;
  std::size_t count_;
};

/// Owns page-locked host memory for `count` objects, uninitialised, to and from which copies run
/// beside the host. Ending one waits for the device: not within a step.
template <class T>
class PinnedArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  explicit PinnedArray(std::size_t count) : count_(count) {
    void* memory = nullptr;
    if (count > 0) WINNOW_CUDA_TRY(cudaMallocHost(&memory, count * sizeof(T)));
    memory_.reset(static_cast<T*>(memory));
  }

  std::span<T> span() const { return {memory_.get(), count_}; }
  T* data() const { return memory_.get(); }

 private:
  std::unique_ptr<T, detail::FreePinned> memory_;
  std::size_t count_;
};

}  // namespace winnow::kernels::cuda
