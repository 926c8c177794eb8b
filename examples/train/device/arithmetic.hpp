// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <winnow/exec.hpp>

#include "train/device/device.hpp"

namespace train::cuda {

// The operations of Device on device memory, except products; each is enqueued on exec.stream. Each
// operation rounds once, and sums run in column order, as on the host. Exception: softmax sums and
// takes maxima over a warp's lanes, and uses the device's own exponential.

using Matrix = MatrixView<float>;
using Symbols = std::span<const std::uint8_t>;

void take_columns(const winnow::Exec& exec, Matrix table, Symbols symbols, Matrix to);
void sum_columns(const winnow::Exec& exec, Matrix from, Symbols symbols, Matrix table);
void sum_rows(const winnow::Exec& exec, Matrix from, float* sums);
void add_bias(const winnow::Exec& exec, Matrix x, const float* bias);
void relu(const winnow::Exec& exec, Matrix x);
void relu_backward(const winnow::Exec& exec, Matrix x, Matrix gradient);
void softmax(const winnow::Exec& exec, Matrix scores, Symbols targets, double* losses);
void softmax_backward(const winnow::Exec& exec, Matrix probabilities, Symbols targets,
                      Matrix gradient);

/// Velocity, parameters and updates have equal length.
struct MomentumStep {
  float momentum;
  std::span<const float> updates;
  float *velocity, *parameters;
};
void momentum_step(const winnow::Exec& exec, const MomentumStep& step);

}  // namespace train::cuda
