// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <winnow/exec.hpp>

namespace winnow::kernels {

// Which device a thread works on. To make one current makes its context, hundreds of megabytes of
// that device, and where the device allows one process alone fails (CUDA 12 and later; before, the
// next call does). So nothing here makes a device current that is so already, and a thread of
// Winnow's own, which begins with device 0 like every thread, stays on the device of its work.

/// That of this thread; -1, no device, where the place is the host.
int current_device(Place place);

/// The device whose memory and streams this thread uses, while it lives. Then it is again the one
/// of before, where that is another: on a thread of the caller's, who may have chosen it.
class DeviceScope {
 public:
  /// `device` as current_device gave it; of -1 it does nothing. CudaError where it cannot be.
  explicit DeviceScope(int device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int before_ = -1;  // where it is another
};

/// The same for good, at the start of a thread of Winnow's own. What fails here the scopes of the
/// thread's work meet again, and throw.
void stay_on(int device) noexcept;

}  // namespace winnow::kernels
