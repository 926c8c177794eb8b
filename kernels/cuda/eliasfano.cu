// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/eliasfano.cuh"
#include "kernels/cuda/launch.cuh"

namespace winnow::kernels::cuda {

void eliasfano_encode(const Exec& exec, std::uint64_t count, std::span<const std::uint32_t> index,
                      std::span<std::byte> out) {
  const EliasFanoTask task = make_encode_task(count, index, out);
  launch<EliasFanoEncode>(exec, blocks_of(out.size() / 8), task);
}

std::size_t eliasfano_decode_scratch(std::uint64_t count, std::uint64_t k) {
  return decode_scratch_bytes(make_eliasfano_task(count, k));
}

void eliasfano_decode(const Exec& exec, const DeviceDecodeJob& job) {
  const EliasFanoTask task = make_decode_task(job);
  clear(exec, task.refused);
  clear(exec, job.scratch.data(), decode_scratch_bytes(task));
  launch<EliasFanoDecode>(exec, blocks_for(ones_tiles(task.high_words)), task);
  launch<EliasFanoCheck>(exec, blocks_of(task.k), task);
}

}  // namespace winnow::kernels::cuda
