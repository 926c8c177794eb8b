// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/cuda/try.hpp"

namespace winnow::tests {

/// Why there is no GPU to test on; empty where there is one. Only "no driver" and "no device" are
/// reasons: a device that is there and fails throws.
inline std::string why_no_device() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver) {
    return std::string("no CUDA device: ") + cudaGetErrorString(status);
  }
  WINNOW_CUDA_TRY(status);
  return devices == 0 ? "no CUDA device" : "";
}

/// A test on the device: skipped, with the reason, where there is none.
class DeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_no_device(); !reason.empty()) GTEST_SKIP() << reason;
  }
};

/// Owns a stream that does not wait for the default stream.
class Stream {
 public:
  Stream() { WINNOW_CUDA_TRY(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() { (void)cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  cudaStream_t get() const { return stream_; }
  void synchronize() const { WINNOW_CUDA_TRY(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Owns device memory for `count` objects; 256-byte aligned.
template <class T>
class DeviceArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  explicit DeviceArray(std::size_t count) : count_(count) {
    void* memory = nullptr;
    if (count > 0) WINNOW_CUDA_TRY(cudaMalloc(&memory, count * sizeof(T)));
    memory_ = static_cast<T*>(memory);
  }
  ~DeviceArray() { (void)cudaFree(memory_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  std::span<T> span() const { return {memory_, count_}; }

  /// Copies and waits; `host` is as long as this.
  void upload(std::span<const T> host, const Stream& stream) {
    WINNOW_CUDA_TRY(cudaMemcpyAsync(memory_, host.data(), host.size_bytes(), cudaMemcpyHostToDevice,
                                    stream.get()));
    stream.synchronize();
  }
  std::vector<T> download(const Stream& stream) const {
    std::vector<T> host(count_);
    WINNOW_CUDA_TRY(cudaMemcpyAsync(host.data(), memory_, count_ * sizeof(T),
                                    cudaMemcpyDeviceToHost, stream.get()));
    stream.synchronize();
    return host;
  }

 private:
  T* memory_ = nullptr;
  std::size_t count_;
};

}  // namespace winnow::tests
