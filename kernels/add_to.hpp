// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

namespace winnow::kernels {

/// A sparse vector: index ascending without repeats. A view.
struct SparseView {
  std::span<const std::uint32_t> index;
  std::span<const float> value;  ///< as many as index
};

/// Adds `lists` to `sum` in their order, then multiplies each position that any list carries by
/// `factor` once (not done where factor is 1):
///   sum[i] = factor * (((sum[i] + lists[0][i]) + lists[1][i]) + ...)
/// Positions are index - base; the caller passes only indices in [base, base + sum.size()). Each
/// thread owns a range of positions and walks all lists through it tile by tile, so there are no
/// atomics and sum is written once. Returns whether every sum it made is finite.
bool add_to(const Exec& exec, std::span<float> sum, std::uint32_t base,
            std::span<const SparseView> lists, float factor);

/// sum[index[i] - base] += value[i] for one list: how a message is put back into a residual.
void put_back(const Exec& exec, std::span<float> sum, std::uint32_t base, const SparseView& list);

}  // namespace winnow::kernels
