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

/// A column-major matrix in a device's memory; a view.
template <class Scalar>
struct MatrixView {
  Scalar* data;
  std::size_t rows, columns;
};

/// Whether a product takes a factor or its transpose.
enum class Take { as_is, transposed };

/// A compute device with its memory: the operations of the model and of its optimizer. They run in
/// the order called, and may be only enqueued: read() and synchronize() wait. Results are
/// reproducible bit for bit. For one rank and one thread.
template <class Scalar>
class Device : public Memory {
 public:
  using Matrix = MatrixView<Scalar>;
  using Symbols = std::span<const std::uint8_t>;

  /// product = left right; each factor may be transposed.
  virtual void multiply(Matrix left, Take take_left, Matrix right, Take take_right,
                        Matrix product) = 0;
  /// Column i of `to` is column symbols[i] of `table`.
  virtual void take_columns(Matrix table, Symbols symbols, Matrix to) = 0;
  /// The reverse: column s of `table` is the sum, in order, of the columns i of `from` with
  /// symbols[i] == s, or zero.
  virtual void sum_columns(Matrix from, Symbols symbols, Matrix table) = 0;
  /// The sum of the columns of `from`.
  virtual void sum_rows(Matrix from, Scalar* sums) = 0;
  /// Adds bias[r] to row r of x.
  virtual void add_bias(Matrix x, const Scalar* bias) = 0;
  /// x = max(x, 0).
  virtual void relu(Matrix x) = 0;
  /// gradient = 0 where relu's result x is 0.
  virtual void relu_backward(Matrix x, Matrix gradient) = 0;
  /// Turns columns of scores into probabilities in place; losses[i] = -log(probability of
  /// targets[i]).
  virtual void softmax(Matrix scores, Symbols targets, double* losses) = 0;
  /// The gradient of the mean of these losses by the scores.
  virtual void softmax_backward(Matrix probabilities, Symbols targets, Matrix gradient) = 0;
  /// velocity = momentum * velocity + updates, parameters -= velocity; each operation rounds once.
  virtual void momentum_step(Scalar momentum, std::span<const Scalar> updates, Scalar* velocity,
                             Scalar* parameters) = 0;
};

/// The host, with the matrix products of Eigen. For float and double.
template <class Scalar>
std::shared_ptr<Device<Scalar>> cpu_device();

/// A GPU: number `place` modulo the number of visible GPUs; it becomes this thread's current
/// device. Matrix products are cuBLAS's, all in float32. Without CUDA or cuBLAS, has_cuda() is
/// false and this throws Exit.
std::shared_ptr<Device<float>> cuda_device(int place);
bool has_cuda();
/// Why no GPU can be used, or empty.
std::string why_no_gpu();

}  // namespace train
