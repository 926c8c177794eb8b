// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

constinit const Bodies kCuda{};  // of a build without CUDA

}  // namespace winnow::kernels
