// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <winnow/error.hpp>
#include <winnow/exec.hpp>

namespace winnow::kernels::cuda {

/// Throws UsageError for an Exec that does not name a device's memory and a stream. The default
/// stream waits for all others, and cannot be captured.
inline void expect_device(const Exec& exec) {
  WINNOW_EXPECTS(exec.place == Place::cuda && exec.stream != nullptr,
                 "kernels of device memory run on a stream: pass Place::cuda and an Exec::stream "
                 "that is not null, as kernels::cuda::Stream::exec() does");
  WINNOW_EXPECTS(exec.device_workspace == nullptr || exec.device_workspace->is_device(),
                 "Exec::device_workspace must be null or of device memory: make it of "
                 "kernels::cuda::kDeviceMemory");
}

}  // namespace winnow::kernels::cuda
