// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <winnow/exec.hpp>

namespace winnow::tests {

/// Where the buckets of a test's Reducer lie, for the thread that asks. By file: in host memory
/// (host_buckets.cpp; with the plain bodies of kernels reference_buckets.cpp), or in a device's, on
/// a stream of each rank's own (device_buckets.cpp).
Exec bucket_place();

}  // namespace winnow::tests
