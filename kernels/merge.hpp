// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/add_to.hpp"

namespace winnow::kernels {

/// The union of two sparse vectors, ascending: where both name a position its value is first +
/// second, one addition in that order, elsewhere the value of the one that names it, as it is. A
/// NaN stays some NaN. index and value have room for first and second together. Returns how many
/// entries there are; what lies behind them is undefined. Bit-identical for every place and number
/// of threads.
std::size_t merge(const Exec& exec, const SparseView& first, const SparseView& second,
                  std::span<std::uint32_t> index, std::span<float> value);

}  // namespace winnow::kernels
