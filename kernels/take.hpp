// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/terms.hpp"

namespace winnow::kernels {

/// Moves the elements at a support out of `elements`, leaving zeros:
///   value[j] = elements[index[j] - base];  elements[index[j] - base] = 0
/// `index` ascends without repeats in [base, base + elements.size()); value is as long. 12 bytes
/// and a cache line there and back for each of them.
void take(const Exec& exec, std::span<float> elements, std::uint32_t base,
          std::span<const std::uint32_t> index, std::span<float> value);

/// elements[list.index[j] - base] = list.value[j]: undoes a take.
void put(const Exec& exec, std::span<float> elements, std::uint32_t base, const SparseView& list);

}  // namespace winnow::kernels
