// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "train/device/device.hpp"
#include "train/exit.hpp"

namespace train {

bool has_cuda() {
  return false;
}

std::string why_no_gpu() {
  return "built without CUDA and cuBLAS";
}

std::shared_ptr<Device<float>> cuda_device(int) {
  throw Exit(kUsageStatus, why_no_gpu());
}

}  // namespace train
