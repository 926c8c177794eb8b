// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/exec/device_scope.hpp"

#include <exception>

#include "kernels/cuda/place_memory.hpp"

namespace winnow::kernels {

int current_device(Place place) {
  return place == Place::cuda ? cuda::current_device() : -1;
}

void DeviceScope::enter(int device) {
  const int before = cuda::current_device();
  if (before == device) return;
  cuda::make_current(device);
  before_ = before;
}

void DeviceScope::leave() const noexcept {
  cuda::restore_current(before_);
}

void stay_on(int device) noexcept {
  if (device < 0) return;
  try {
    cuda::make_current(device);
  } catch (const std::exception&) {
    // As a scope will say.
  }
}

}  // namespace winnow::kernels
