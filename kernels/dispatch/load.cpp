// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/load.hpp"

#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

void load_kernels(Place place) {
  if (place == Place::cuda && kCuda.load != nullptr) kCuda.load();
}

}  // namespace winnow::kernels
