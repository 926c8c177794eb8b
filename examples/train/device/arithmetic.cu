// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "train/device/arithmetic.cuh"
#include "train/device/arithmetic.hpp"

namespace train::cuda {

using winnow::Exec;
using winnow::kernels::cuda::blocks_of;
using winnow::kernels::cuda::launch;

namespace {

std::uint64_t count_of(Matrix matrix) {
  return std::uint64_t{matrix.rows} * matrix.columns;
}

}  // namespace

void take_columns(const Exec& exec, Matrix table, Symbols symbols, Matrix to) {
  launch<TakeColumns>(exec, blocks_of(count_of(to)),
                      {table.data, symbols.data(), to.rows, to.columns, to.data});
}

void sum_columns(const Exec& exec, Matrix from, Symbols symbols, Matrix table) {
  launch<SumColumns>(
      exec, blocks_of(count_of(table)),
      {from.data, symbols.data(), table.rows, table.columns, table.data, symbols.size()});
}

void sum_rows(const Exec& exec, Matrix from, float* sums) {
  launch<SumRows>(exec, blocks_of(from.rows), {from.data, from.rows, from.columns, sums});
}

void add_bias(const Exec& exec, Matrix x, const float* bias) {
  launch<AddBias>(exec, blocks_of(count_of(x)), {x.data, x.rows, x.columns, bias});
}

void relu(const Exec& exec, Matrix x) {
  launch<Relu>(exec, blocks_of(count_of(x)), {x.data, count_of(x)});
}

void relu_backward(const Exec& exec, Matrix x, Matrix gradient) {
  launch<ReluBackward>(exec, blocks_of(count_of(x)), {x.data, gradient.data, count_of(x)});
}

void softmax(const Exec& exec, Matrix scores, Symbols targets, double* losses) {
  launch<Softmax>(exec, blocks_of(scores.columns * winnow::simt::kLanes),
                  {scores.data, targets.data(), scores.rows, scores.columns, losses});
}

void softmax_backward(const Exec& exec, Matrix probabilities, Symbols targets, Matrix gradient) {
  launch<SoftmaxBackward>(
      exec, blocks_of(count_of(gradient)),
      {probabilities.data, targets.data(), gradient.rows, gradient.columns, gradient.data});
}

void momentum_step(const Exec& exec, const MomentumStep& step) {
  launch<TakeStep>(
      exec, blocks_of(step.updates.size()),
      {step.momentum, step.updates.data(), step.velocity, step.parameters, step.updates.size()});
}

}  // namespace train::cuda
