// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/try.hpp"

namespace winnow::kernels::cuda {

/// Makes a device current while it lives.
class DeviceScope {
 public:
  explicit DeviceScope(int device) : device_(device) {
    WINNOW_CUDA_TRY(cudaGetDevice(&before_));
    if (before_ != device_) WINNOW_CUDA_TRY(cudaSetDevice(device_));
  }
  ~DeviceScope() {
    if (before_ != device_) (void)cudaSetDevice(before_);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int device_, before_ = 0;
};

}  // namespace winnow::kernels::cuda
