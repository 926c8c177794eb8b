// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/stream.hpp"
#include "tests/harness/bucket_place.hpp"

namespace winnow::tests {

Exec bucket_place() {
  thread_local const kernels::cuda::Stream stream;
  return stream.exec();
}

}  // namespace winnow::tests
