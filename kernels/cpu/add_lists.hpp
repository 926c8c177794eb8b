// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/terms.hpp"

namespace winnow::kernels::cpu {

/// Adds lists, whose values are not coded, to `sum` in their order, then multiplies each position
/// that any list names by `factor` once (not done where factor is 1):
///   sum[i] = factor * (((sum[i] + lists[0][begin + i]) + lists[1][begin + i]) + ...)
/// Entries outside of [begin, begin + sum.size()) are left out. Each thread owns a range of
/// positions and walks all lists through it tile by tile, so there are no atomics and sum is
/// written once. Returns whether every sum it made is finite.
bool add_lists(const Exec& exec, std::span<const Term> lists, std::uint64_t begin,
               std::span<float> sum, float factor);

}  // namespace winnow::kernels::cpu
