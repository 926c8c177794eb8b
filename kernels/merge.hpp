// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/terms.hpp"

namespace winnow::kernels {

struct MergeJob {
  SparseView first = {}, second = {};
  std::span<std::uint32_t> index = {};  ///< room for both lists together
  std::span<float> value = {};          ///< as much
  std::uint64_t* size = nullptr;        ///< becomes how many entries there are
  std::uint64_t count = 0;              ///< indices lie below it: how likely lists meet
};

/// The union of two sparse vectors, ascending: where both name a position its value is first +
/// second, one addition in that order, elsewhere the value of the one that names it, as it is. A
/// NaN stays some NaN. The content behind the entries is undefined. Bit-identical for every place
/// and number of threads. On a device exec.device_workspace is required: 8 bytes for each 2048
/// places of `index`, and a few.
void merge(const Exec& exec, const MergeJob& job);

}  // namespace winnow::kernels
