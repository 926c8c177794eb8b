// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/eliasfano.cuh"
#include "kernels/cuda/launch.cuh"

namespace winnow::kernels::cuda {

std::size_t eliasfano_decode_scratch(std::uint64_t count, std::uint64_t k) {
  return decode_scratch_bytes(make_eliasfano_task(count, k));
}

void eliasfano_decode(const Exec& exec, const DeviceDecodeJob& job) {
  const EliasFanoTask task = make_decode_task(job);
  launch<EliasFanoDecode>(exec, blocks_for(ones_tiles(task.high_words)), task);
  launch<EliasFanoCheck>(exec, blocks_of(task.k), task);
}

}  // namespace winnow::kernels::cuda
