// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kernels/cuda/pieces.cuh"
#include "tests/model/machine.hpp"

namespace winnow::tests {

/// Does a task of one piece of memory, if there is any.
template <class Task>
void launch_one_piece(Machine& machine, unsigned blocks, const Task& task) {
  using Piece = kernels::cuda::Pieces<Task, 1>;
  if (task.count > 0) machine.launch<Piece>(blocks, Piece::of({&task, 1}));
}

}  // namespace winnow::tests
