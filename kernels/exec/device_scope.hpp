// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <winnow/exec.hpp>

namespace winnow::kernels {

// Which device a thread works on. To make one current makes its context, hundreds of megabytes of
// that device, and where the device allows one process alone fails (CUDA 12 and later; before, the
// next call does). So nothing here makes a device current that is so already, and a thread of
// Winnow's own, which begins with device 0 like every thread, stays on the device of its work.

/// The device of this thread; -1, no device, if the place is the host.
int current_device(Place place);

/// Makes a device current for this thread while it lives, and then again the one before, if that is
/// another: the caller may have chosen it.
class DeviceScope {
 public:
  /// `device` as current_device gave it; for -1 it does nothing. CudaError if it cannot be made
  /// current.
  explicit DeviceScope(int device) {
    if (device >= 0) enter(device);
  }
  ~DeviceScope() {
    if (before_ >= 0) leave();
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  void enter(int device);
  void leave() const noexcept;

  int before_ = -1;  // if it is another
};

/// Makes a device current for good, at the start of a thread of Winnow's own. If it fails, the
/// scopes of the thread's work fail again, and throw.
void stay_on(int device) noexcept;

}  // namespace winnow::kernels
