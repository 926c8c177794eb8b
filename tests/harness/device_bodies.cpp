// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "kernels/cuda/memory.hpp"
#include "kernels/cuda/stream.hpp"
#include "tests/harness/device.hpp"
#include "tests/harness/kernel_place.hpp"

namespace winnow::tests {

void for_each_body(const std::function<void(const Exec& exec)>& body) {
  if (const std::string reason = why_no_device(); !reason.empty()) GTEST_SKIP() << reason;
  Workspace workspace, device_workspace(kernels::cuda::kDeviceMemory),
      pinned_workspace(kernels::cuda::kPinnedMemory);
  const kernels::cuda::Stream stream;
  Exec exec = stream.exec();
  exec.workspace = &workspace;
  exec.device_workspace = &device_workspace;
  exec.pinned_workspace = &pinned_workspace;
  body(exec);
  stream.synchronize();
}

std::size_t many(std::size_t most) {
  return large(most);
}

}  // namespace winnow::tests
