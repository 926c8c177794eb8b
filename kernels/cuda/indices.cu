// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/indices.cuh"
#include "kernels/cuda/indices.hpp"
#include "kernels/cuda/launch.cuh"

namespace winnow::kernels::cuda {

void raw32_encode(const Exec& exec, std::span<const std::uint32_t> index,
                  std::span<std::byte> out) {
  const IndicesTask task = make_raw32_encode_task(index, out);
  if (task.words > 0) launch<Raw32Encode>(exec, blocks_of(task.words), task);
}

void raw32_decode(const Exec& exec, const DeviceDecodeJob& job) {
  const IndicesTask task = make_raw32_decode_task(job);
  clear(exec, task.refused);
  if (task.words > 0) launch<Raw32Decode>(exec, blocks_of(2 * task.words), task);
}

void bitmap_encode(const Exec& exec, std::uint64_t count, std::span<const std::uint32_t> index,
                   std::span<std::byte> out) {
  const IndicesTask task = make_bitmap_encode_task(count, index, out);
  if (task.words > 0) launch<BitmapEncode>(exec, blocks_of(task.words), task);
}

std::size_t bitmap_decode_scratch(std::uint64_t count) {
  return bitmap_scratch_bytes(count);
}

void bitmap_decode(const Exec& exec, const DeviceDecodeJob& job) {
  const IndicesTask task = make_bitmap_decode_task(job);
  clear(exec, task.refused);
  clear(exec, job.scratch.data(), bitmap_scratch_bytes(job.count));
  launch<BitmapDecode>(exec, blocks_for(ones_tiles(task.words)), task);
}

}  // namespace winnow::kernels::cuda
