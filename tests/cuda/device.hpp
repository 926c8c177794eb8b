// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <string>

#include "kernels/cuda/memory.hpp"
#include "kernels/cuda/stream.hpp"
#include "kernels/cuda/try.hpp"

namespace winnow::tests {

using kernels::cuda::DeviceArray;
using kernels::cuda::Event;
using kernels::cuda::PinnedArray;
using kernels::cuda::Stream;

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

}  // namespace winnow::tests
