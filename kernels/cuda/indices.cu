// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/indices.cuh"
#include "kernels/cuda/indices.hpp"
#include "kernels/cuda/launch.cuh"

namespace winnow::kernels::cuda {

void raw32_decode(const Exec& exec, const DeviceDecodeJob& job) {
  const IndicesTask task = make_raw32_decode_task(job);
  if (task.words > 0) launch<Raw32Decode>(exec, blocks_of(2 * task.words), task);
}

std::size_t bitmap_decode_scratch(std::uint64_t count) {
  return bitmap_scratch_bytes(count);
}

void bitmap_decode(const Exec& exec, const DeviceDecodeJob& job) {
  const IndicesTask task = make_bitmap_decode_task(job);
  launch<BitmapDecode>(exec, blocks_for(ones_tiles(task.words)), task);
}

}  // namespace winnow::kernels::cuda
