// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "train/memory.hpp"

namespace train {

/// A matrix in the memory of a device, column after column; a view.
template <class Scalar>
struct MatrixView {
  Scalar* data;
  std::size_t rows, columns;
};

/// Whether a factor of a product is taken as it is, or its transpose.
enum class Take { as_is, transposed };

/// What computes, with its memory: the operations of the model and of its optimizer, on what lies
/// there. All are done in the order in which they are called, and may be enqueued: read() and
/// synchronize() wait. Each gives the same bits again. One rank's, and one thread's, alone.
template <class Scalar>
class Device : public Memory {
 public:
  using Matrix = MatrixView<Scalar>;
  using Symbols = std::span<const std::uint8_t>;

  /// product = left right, of either factor the transpose where it says so.
  virtual void multiply(Matrix left, Take take_left, Matrix right, Take take_right,
                        Matrix product) = 0;
  /// Column i of `to` is the column symbols[i] of `table`.
  virtual void take_columns(Matrix table, Symbols symbols, Matrix to) = 0;
  /// The other way: column s of `table` is the sum of those columns i of `from` of which symbols[i]
  /// is s, in their order; zero where there is none.
  virtual void sum_columns(Matrix from, Symbols symbols, Matrix table) = 0;
  /// The sum of the columns of `from`.
  virtual void sum_rows(Matrix from, Scalar* sums) = 0;
  /// bias[r] is added to row r of x.
  virtual void add_bias(Matrix x, const Scalar* bias) = 0;
  /// x = max(x, 0).
  virtual void relu(Matrix x) = 0;
  /// gradient = 0 where relu's result x is 0.
  virtual void relu_backward(Matrix x, Matrix gradient) = 0;
  /// Turns columns of scores into probabilities in place; losses[i] = -log of that of targets[i].
  virtual void softmax(Matrix scores, Symbols targets, double* losses) = 0;
  /// Of the mean of these losses, by the scores.
  virtual void softmax_backward(Matrix probabilities, Symbols targets, Matrix gradient) = 0;
  /// values *= factor.
  virtual void scale(std::span<Scalar> values, Scalar factor) = 0;
  /// velocity = momentum * velocity + updates, parameters -= velocity; one rounding an operation.
  virtual void momentum_step(Scalar momentum, std::span<const Scalar> updates, Scalar* velocity,
                             Scalar* parameters) = 0;
};

/// The host, with the matrix products of Eigen. For float and double.
template <class Scalar>
std::shared_ptr<Device<Scalar>> cpu_device();

/// A GPU: that of number `place` of those seen here, counted round, and current from then on for
/// this thread. Matrix products are cuBLAS's, in float32 throughout. Where built without CUDA or
/// without cuBLAS, has_cuda() is false and this throws Exit.
std::shared_ptr<Device<float>> cuda_device(int place);
bool has_cuda();
/// Why there is no GPU to make one of; empty where there is.
std::string why_no_gpu();

}  // namespace train
