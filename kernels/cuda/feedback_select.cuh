// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/select_cut.cuh"
#include "kernels/cuda/select_pass.cuh"
#include "kernels/cuda/select_task.hpp"
#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/tasks.cuh"

// Exact selection in one pass over memory, without the host.
//
// 1. StreamPass: under a bound nothing is expected to be among the k largest. It is the one carried
//    from the last step, or, on a parameter's first, one from a sample. acc goes into the residual;
//    where |acc| reaches the bound it moves on into the candidates, in index order, leaving 0.
//    Candidates beyond their room stay where they are. Where acc is not finite the residual stays,
//    and the gradient is marked by NaN: where acc is finite, the gradient is. Elements of the other
//    side stay in the residual. So do own units, and what reaches their bound is listed.
// 2. Cut, of the candidates; fewer than k, or more than there is room for, do not serve: they go
//    back into the residual, and from there on the whole residual stands for the candidates.
// 3. ClearMarks, where something is not finite and the gradient is to be zero.
//
// If all that reaches a given bound must be kept, StreamPass does it all: its candidates go to
// the message, behind those of parameters before. Only ClearMarks may follow.
//
// A kernel that has nothing to do returns at once, so a step is the same launches whatever the
// numbers are. Fewer than k finite elements on the side: all of them are kept, and the lowest
// positions of others, as 0.

namespace winnow::kernels::cuda {

template <class Tasks>
struct ClearMarks {
  Tasks tasks;

  WINNOW_DEVICE void run() const {
    for (std::uint32_t drawn = simt::block(); drawn < tasks.tiles(); drawn += simt::blocks()) {
      const SelectTask& task = tasks.at(drawn);
      if (!task.zero_gradient || task.control->not_finite == 0) continue;
      const std::uint32_t begin = (drawn - task.first_tile) * kSelectTile;
      for (std::uint32_t i = simt::thread(); i < kSelectTile; i += simt::kThreads) {
        if (begin + i < task.count) task.gradient.set(begin + i, 0);
      }
    }
  }
};

/// The purpose of the kernels of a launch.
struct SelectShape {
  bool has_own, makes_updates, zero_gradient;  ///< of some task
  bool one_side = false;                       ///< likewise; not together with has_own
  bool prefetches = true;                      ///< the next tile of each block

  static SelectShape of(const SelectTask& task) {
    return {.has_own = task.has_own,
            .makes_updates = task.precondition.kind != Precondition::Kind::none,
            .zero_gradient = task.zero_gradient,
            .one_side = task.side != Side::both};
  }
};

/// Calls stage(pass) with the StreamPass for a shape.
template <bool kKeeps, class Tasks, class Stage>
void with_stream_pass(const Tasks& tasks, const SelectShape& shape, const Stage& stage) {
  if (shape.has_own && shape.makes_updates) {
    stage(StreamPass<Tasks, true, true, kKeeps>{tasks, shape.prefetches});
  } else if (shape.has_own) {
    stage(StreamPass<Tasks, true, false, kKeeps>{tasks, shape.prefetches});
  } else if (shape.one_side && shape.makes_updates) {
    stage(StreamPass<Tasks, false, true, false, true>{tasks, shape.prefetches});
  } else if (shape.one_side) {
    stage(StreamPass<Tasks, false, false, false, true>{tasks, shape.prefetches});
  } else if (shape.makes_updates) {
    stage(StreamPass<Tasks, false, true, kKeeps>{tasks, shape.prefetches});
  } else {
    stage(StreamPass<Tasks, false, false, kKeeps>{tasks, shape.prefetches});
  }
}

/// Calls stage(kernel) for each kernel of a step, in order.
template <class Tasks, class Stage>
void for_each_select_kernel(const Tasks& tasks, const SelectShape& shape, const Stage& stage) {
  with_stream_pass<false>(tasks, shape, stage);
  stage(Cut<Tasks>{tasks});
  if (shape.zero_gradient) stage(ClearMarks<Tasks>{tasks});
}

/// Calls stage(kernel) for a selection that keeps all that reaches a bound.
template <class Stage>
void for_each_threshold_kernel(const SelectTask& task, const SelectShape& shape,
                               const Stage& stage) {
  const OneSelect tasks{task};
  with_stream_pass<true>(tasks, shape, stage);
  if (task.zero_gradient) stage(ClearMarks<OneSelect>{tasks});
}

}  // namespace winnow::kernels::cuda
