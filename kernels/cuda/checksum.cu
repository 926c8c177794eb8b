// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/checksum.hpp"
#include "kernels/cuda/checksum.cuh"
#include "kernels/cuda/launch.cuh"

namespace winnow::kernels::cuda {

void checksums(const Exec& exec, std::span<const std::span<const std::byte>> messages,
               std::uint64_t* sums) {
  if (messages.empty()) return;
  for_each_checksums_task(messages, sums, [&](const ChecksumsTask& task, std::uint64_t pairs) {
    const std::uint64_t blocks_each = (pairs + simt::kThreads) / simt::kThreads;
    const unsigned most = blocks_for(blocks_each * task.count);
    launch<Checksums>(exec, std::max(most / task.count, 1U) * task.count, {task});
  });
}

}  // namespace winnow::kernels::cuda
