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

/// Column i of `to` is column symbols[i] of `from`.
struct TakeColumns {
  const float* from;
  const std::uint8_t* symbols;
  std::uint64_t rows, columns;  ///< of `to`
  float* to;

  WINNOW_DEVICE void run() const {
    for_each(rows * columns, [this](std::uint64_t i) {
      const std::uint64_t column = symbols[i / rows];
      to[i] = from[column * rows + i % rows];
    });
  }
};

/// Column s of `to` is the sum of the columns of `from` whose symbol is s. One thread sums one
/// element, in column order; threads of one column take the same branches.
struct SumColumns {
  const float* from;
  const std::uint8_t* symbols;
  std::uint64_t rows, columns;  ///< of `to`
  float* to;
  std::uint64_t symbol_count;

  WINNOW_DEVICE void run() const {
    for_each(rows * columns, [this](std::uint64_t i) {
      const std::uint64_t mine = i / rows, row = i % rows;
      float sum = 0;
      for (std::uint64_t c = 0; c < symbol_count; ++c) {
        if (symbols[c] == mine) sum += from[c * rows + row];
      }
      to[i] = sum;
    });
  }
};

struct SumRows {
  const float* x;
  std::uint64_t rows, columns;
  float* sums;

  WINNOW_DEVICE void run() const {
    for_each(rows, [this](std::uint64_t row) {
      float sum = 0;
      for (std::uint64_t c = 0; c < columns; ++c) sum += x[c * rows + row];
      sums[row] = sum;
    });
  }
};

struct AddBias {
  float* x;
  std::uint64_t rows, columns;
  const float* bias;

  WINNOW_DEVICE void run() const {
    for_each(rows * columns, [this](std::uint64_t i) { x[i] += bias[i % rows]; });
  }
};

/// Passes NaN through.
struct Relu {
  float* x;
  std::uint64_t count;

  WINNOW_DEVICE void run() const {
    for_each(count, [this](std::uint64_t i) {
      if (x[i] < 0) x[i] = 0;
    });
  }
};

struct ReluBackward {
  const float* x;
  float* gradient;
  std::uint64_t count;

  WINNOW_DEVICE void run() const {
    for_each(count, [this](std::uint64_t i) {
      if (!(x[i] > 0)) gradient[i] = 0;
    });
  }
};

/// One warp per column: a lane takes every kLanes-th row, and reads only scores that no other lane
/// writes.
struct Softmax {
  float* scores;  ///< become probabilities
  const std::uint8_t* targets;
  std::uint64_t rows, columns;
  double* losses;

  WINNOW_DEVICE void run() const {
    const std::uint64_t warps = simt::grid_threads() / simt::kLanes;
    for (std::uint64_t c = simt::grid_thread() / simt::kLanes; c < columns; c += warps) {
      float* const column = scores + c * rows;
      float most = -std::numeric_limits<float>::infinity();
      for (std::uint64_t row = simt::lane(); row < rows; row += simt::kLanes) {
        most = most < column[row] ? column[row] : most;
      }
      for (unsigned step = simt::kLanes / 2; step > 0; step /= 2) {
        const float other = simt::shuffle_xor(most, step);
        most = most < other ? other : most;
      }
      const std::uint64_t target = targets[c];
      const bool has_target = target % simt::kLanes == simt::lane();
      const float score = has_target ? column[target] - most : 0;
      float sum = 0;
      for (std::uint64_t row = simt::lane(); row < rows; row += simt::kLanes) {
        column[row] = std::exp(column[row] - most);
        sum += column[row];
      }
      sum = simt::warp_sum(sum);
      for (std::uint64_t row = simt::lane(); row < rows; row += simt::kLanes) {
        column[row] /= sum;
      }
      if (has_target) {
        losses[c] = std::log(static_cast<double>(sum)) - static_cast<double>(score);
      }
    }
  }
};

struct SoftmaxBackward {
  const float* scores;  ///< after Softmax
  const std::uint8_t* targets;
  std::uint64_t rows, columns;
  float* gradient;

  WINNOW_DEVICE void run() const {
    for_each(rows * columns, [this](std::uint64_t i) {
      const bool is_target = targets[i / rows] == i % rows;
      const float difference = is_target ? scores[i] - 1 : scores[i];
      gradient[i] = difference / static_cast<float>(columns);
    });
  }
};

struct TakeStep {
  float momentum;
  const float* updates;
  float *velocity, *parameters;
  std::uint64_t count;

  WINNOW_DEVICE void run() const {
    for_each(count, [this](std::uint64_t i) {
      velocity[i] = momentum * velocity[i] + updates[i];
      parameters[i] -= velocity[i];
    });
  }
};

}  // namespace train::cuda
