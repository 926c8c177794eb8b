// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>

#include "kernels/cuda/memory.hpp"
#include "kernels/cuda/stream.hpp"
#include "kernels/cuda/try.hpp"
#include "kernels/exec/place_memory.hpp"

namespace winnow::tests {

using kernels::cuda::DeviceArray;
using kernels::cuda::Event;
using kernels::cuda::PinnedArray;
using kernels::cuda::Stream;

/// Device memory that begins as zeros.
template <class T>
class DeviceZeros : public DeviceArray<T> {
 public:
  DeviceZeros(std::size_t count, const Stream& stream) : DeviceArray<T>(count) { clear(stream); }
  void clear(const Stream& stream) const {
    kernels::zero(stream.exec(), std::as_writable_bytes(this->span()));
  }
};

/// Why there is no GPU to test on, or empty. Only "no driver" and "no device" are reasons: a device
/// that exists and fails throws.
inline std::string why_no_device() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver) {
    return std::string("no CUDA device: ") + cudaGetErrorString(status);
  }
  WINNOW_CUDA_TRY(status);
  return devices == 0 ? "no CUDA device" : "";
}

/// A large count: `on_gpu` elements, or fewer on the model of a device, which has one
/// multiprocessor.
inline std::size_t large(std::size_t on_gpu) {
  constexpr std::size_t kOnModel = 40'009;  // longer than a trip of its largest grid
  int multiprocessors = 0;
  WINNOW_CUDA_TRY(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  return multiprocessors == 1 ? std::min(on_gpu, kOnModel) : on_gpu;
}

/// A test on the device; skipped, with the reason, if there is none.
class DeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_no_device(); !reason.empty()) GTEST_SKIP() << reason;
  }
};

}  // namespace winnow::tests
