// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/dispatch/bodies.hpp"

#include "kernels/load.hpp"

namespace winnow::kernels {

constinit const Bodies* reference_bodies = nullptr;

void load_kernels(Place place) {
  if (place == Place::cuda && kCuda.load != nullptr) kCuda.load();
}

bool can_run(Place place) noexcept {
  return place == Place::host || place == Place::cuda ||
         (place == kReferencePlace && reference_bodies != nullptr);
}

}  // namespace winnow::kernels
