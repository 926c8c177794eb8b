// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <winnow/exec.hpp>

namespace winnow::tests {

/// The memory of a test Reducer's buckets, for the calling thread. The linked file decides: host
/// memory (host_buckets.cpp; with the plain kernel bodies reference_buckets.cpp), or device memory
/// with a stream per rank (device_buckets.cpp).
Exec bucket_place();

}  // namespace winnow::tests
