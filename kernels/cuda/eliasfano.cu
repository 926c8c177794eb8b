// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/eliasfano.cuh"
#include "kernels/cuda/launch.cuh"

namespace winnow::kernels::cuda {

void eliasfano_encode(const Exec& exec, std::uint64_t count, std::span<const std::uint32_t> index,
                      std::span<std::byte> out) {
  const EliasFanoTask task = make_encode_task(count, index, out);
  launch<EliasFanoEncode>(exec, blocks_for((out.size() / 8 + simt::kThreads - 1) / simt::kThreads),
                          task);
}

std::size_t eliasfano_decode_scratch(std::uint64_t count, std::uint64_t k) {
  return decode_scratch_bytes(make_eliasfano_task(count, k));
}

void eliasfano_decode(const Exec& exec, const DeviceDecodeJob& job) {
  const EliasFanoTask task = make_decode_task(job);
  const auto stream = static_cast<cudaStream_t>(exec.stream);
  WINNOW_CUDA_TRY(cudaMemsetAsync(task.refused, 0, sizeof *task.refused, stream));
  WINNOW_CUDA_TRY(cudaMemsetAsync(job.scratch.data(), 0, decode_scratch_bytes(task), stream));
  launch<EliasFanoDecode>(exec, blocks_for(decode_tiles(task)), task);
  launch<EliasFanoCheck>(exec, blocks_for((task.k + simt::kThreads - 1) / simt::kThreads), task);
}

}  // namespace winnow::kernels::cuda
