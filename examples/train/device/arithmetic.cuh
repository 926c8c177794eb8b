// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/cuda/simt.hpp"

namespace train::cuda {

// Kernels in the style of kernels/cuda/simt.hpp. Matrices are column-major.

namespace simt = winnow::simt;

/// Calls each(i) for this thread's share of the i below `count`.
template <class Each>
WINNOW_DEVICE void for_each(std::uint64_t count, const Each& each) {
  for (std::uint64_t i = simt::grid_thread(); i < count; i += simt::grid_threads()) each(i);
}

struct ColumnsTask {
  const float* from;
  const std::uint8_t* symbols;
  std::uint64_t rows, columns;  ///< of `to`
  float* to;
  std::uint64_t symbol_count;
};

/// Column i of `to` is column symbols[i] of `from`.
struct TakeColumns {
  using Task = ColumnsTask;
  struct Shared {};

  WINNOW_DEVICE static void run(Shared&, const Task& task) {
    for_each(task.rows * task.columns, [&task](std::uint64_t i) {
      const std::uint64_t column = task.symbols[i / task.rows];
      task.to[i] = task.from[column * task.rows + i % task.rows];
    });
  }
};

/// Column s of `to` is the sum of the columns of `from` whose symbol is s. One thread sums one
/// element, in column order; threads of one column take the same branches.
struct SumColumns {
  using Task = ColumnsTask;
  struct Shared {};

  WINNOW_DEVICE static void run(Shared&, const Task& task) {
    for_each(task.rows * task.columns, [&task](std::uint64_t i) {
      const std::uint64_t mine = i / task.rows, row = i % task.rows;
      float sum = 0;
      for (std::uint64_t c = 0; c < task.symbol_count; ++c) {
        if (task.symbols[c] == mine) sum += task.from[c * task.rows + row];
      }
      task.to[i] = sum;
    });
  }
};

struct RowsTask {
  float* x;
  std::uint64_t rows, columns;
  const float* bias;
  float* sums;
};

struct SumRows {
  using Task = RowsTask;
  struct Shared {};

  WINNOW_DEVICE static void run(Shared&, const Task& task) {
    for_each(task.rows, [&task](std::uint64_t row) {
      float sum = 0;
      for (std::uint64_t c = 0; c < task.columns; ++c) sum += task.x[c * task.rows + row];
      task.sums[row] = sum;
    });
  }
};

struct AddBias {
  using Task = RowsTask;
  struct Shared {};

  WINNOW_DEVICE static void run(Shared&, const Task& task) {
    for_each(task.rows * task.columns,
             [&task](std::uint64_t i) { task.x[i] += task.bias[i % task.rows]; });
  }
};

struct ReluTask {
  float* x;
  float* gradient;  ///< for ReluBackward
  std::uint64_t count;
};

/// Passes NaN through.
struct Relu {
  using Task = ReluTask;
  struct Shared {};

  WINNOW_DEVICE static void run(Shared&, const Task& task) {
    for_each(task.count, [&task](std::uint64_t i) {
      if (task.x[i] < 0) task.x[i] = 0;
    });
  }
};

struct ReluBackward {
  using Task = ReluTask;
  struct Shared {};

  WINNOW_DEVICE static void run(Shared&, const Task& task) {
    for_each(task.count, [&task](std::uint64_t i) {
      if (!(task.x[i] > 0)) task.gradient[i] = 0;
    });
  }
};

struct SoftmaxTask {
  float* scores;  ///< become probabilities
  const std::uint8_t* targets;
  std::uint64_t rows, columns;
  double* losses;
  float* gradient;  ///< for SoftmaxBackward
};

/// One warp per column: a lane takes every kLanes-th row, and reads only scores that no other lane
/// writes.
struct Softmax {
  using Task = SoftmaxTask;
  struct Shared {};

  WINNOW_DEVICE static void run(Shared&, const Task& task) {
    const std::uint64_t warps = simt::grid_threads() / simt::kLanes;
    for (std::uint64_t c = simt::grid_thread() / simt::kLanes; c < task.columns; c += warps) {
      float* const column = task.scores + c * task.rows;
      float most = -std::numeric_limits<float>::infinity();
      for (std::uint64_t row = simt::lane(); row < task.rows; row += simt::kLanes) {
        most = most < column[row] ? column[row] : most;
      }
      for (unsigned step = simt::kLanes / 2; step > 0; step /= 2) {
        const float other = simt::shuffle_xor(most, step);
        most = most < other ? other : most;
      }
      const std::uint64_t target = task.targets[c];
      const bool has_target = target % simt::kLanes == simt::lane();
      const float score = has_target ? column[target] - most : 0;
      float sum = 0;
      for (std::uint64_t row = simt::lane(); row < task.rows; row += simt::kLanes) {
        column[row] = std::exp(column[row] - most);
        sum += column[row];
      }
      sum = simt::warp_sum(sum);
      for (std::uint64_t row = simt::lane(); row < task.rows; row += simt::kLanes) {
        column[row] /= sum;
      }
      if (has_target) {
        task.losses[c] = std::log(static_cast<double>(sum)) - static_cast<double>(score);
      }
    }
  }
};

struct SoftmaxBackward {
  using Task = SoftmaxTask;
  struct Shared {};

  WINNOW_DEVICE static void run(Shared&, const Task& task) {
    for_each(task.rows * task.columns, [&task](std::uint64_t i) {
      const bool is_target = task.targets[i / task.rows] == i % task.rows;
      const float difference = is_target ? task.scores[i] - 1 : task.scores[i];
      task.gradient[i] = difference / static_cast<float>(task.columns);
    });
  }
};

struct MomentumTask {
  float momentum;
  const float* updates;
  float *velocity, *parameters;
  std::uint64_t count;
};

struct TakeStep {
  using Task = MomentumTask;
  struct Shared {};

  WINNOW_DEVICE static void run(Shared&, const Task& task) {
    for_each(task.count, [&task](std::uint64_t i) {
      const float velocity = task.momentum * task.velocity[i] + task.updates[i];
      task.velocity[i] = velocity;
      task.parameters[i] -= velocity;
    });
  }
};

}  // namespace train::cuda
