// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <span>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pieces.cuh"
#include "kernels/exec/together.hpp"

namespace winnow::kernels::cuda {

/// Launches tasks that lie behind each other: one, few, or as many as the arguments of a kernel
/// have room for, 4 KB and, from CUDA 12.1 on, 32 KB.
template <class Task>
void launch_tasks(const Exec& exec, std::span<const std::byte> bytes) {
  constexpr std::size_t kEach = sizeof(Task) + sizeof(std::uint32_t);
  constexpr unsigned kFew = 3800 / kEach;
  constexpr unsigned kMany = CUDART_VERSION >= 12010 ? 32000 / kEach : kFew;
  std::span<const Task> tasks(reinterpret_cast<const Task*>(bytes.data()),
                              bytes.size() / sizeof(Task));
  const auto launch_as = [&exec]<unsigned kMost>(const Pieces<Task, kMost>& pieces) {
    launch(exec, blocks_for(pieces.tiles()), pieces);
  };
  while (!tasks.empty()) {
    const auto some = tasks.first(std::min<std::size_t>(tasks.size(), kMany));
    if (some.size() == 1) {
      launch_as(Pieces<Task, 1>::of(some));
    } else if (some.size() <= kFew) {
      launch_as(Pieces<Task, kFew>::of(some));
    } else {
      launch_as(Pieces<Task, kMany>::of(some));
    }
    tasks = tasks.subspan(some.size());
  }
}

/// Whether tasks wait for others of their kind.
inline bool is_collected(const Exec& exec) {
  return exec.launches != nullptr && exec.launches->takes(exec);
}

/// Enqueues a task, now or together with others of its kind.
template <class Task>
void launch_piece(const Exec& exec, const Task& task) {
  if (task.count == 0) return;
  const auto bytes = std::as_bytes(std::span(&task, 1));
  if (is_collected(exec)) {
    exec.launches->add(&launch_tasks<Task>, bytes);
  } else {
    launch_tasks<Task>(exec, bytes);
  }
}

}  // namespace winnow::kernels::cuda
