// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/feedback_select.hpp"

namespace winnow::kernels::reference {

/// Moves the k = index.size() elements of `values` largest in magnitude to index and value, as
/// feedback_select does (feedback_select.cpp), leaving zeros. All must be finite. For select_sums.
void select(const Exec& exec, std::span<float> values, SelectBound& state,
            std::span<std::uint32_t> index, std::span<float> value);

}  // namespace winnow::kernels::reference
