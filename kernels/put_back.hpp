// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/terms.hpp"

namespace winnow::kernels {

/// sum[index[i] - base] += value[i]: how a message is put back into a residual. The caller passes
/// only indices in [base, base + sum.size()).
void put_back(const Exec& exec, std::span<float> sum, std::uint32_t base, const SparseView& list);

}  // namespace winnow::kernels
