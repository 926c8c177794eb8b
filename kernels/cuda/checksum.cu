// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/checksum.cuh"
#include "kernels/cuda/checksum.hpp"
#include "kernels/cuda/launch.cuh"

namespace winnow::kernels::cuda {

void checksum(const Exec& exec, std::span<const std::byte> bytes, std::uint64_t* sum) {
  const ChecksumTask task = make_checksum_task(bytes, sum);
  clear(exec, sum);
  if (!bytes.empty()) launch<Checksum>(exec, blocks_of(task.pairs + 1), task);
}

}  // namespace winnow::kernels::cuda
