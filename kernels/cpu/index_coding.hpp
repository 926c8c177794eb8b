// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/index_coding.hpp"

namespace winnow::kernels::cpu {

// The encoders of index parts. Each writes all bytes of `out`, as many as its coding has.

void encode_raw32(std::span<const std::uint32_t> index, std::span<std::byte> out);
void encode_bitmap(std::span<const std::uint32_t> index, std::span<std::byte> out);

}  // namespace winnow::kernels::cpu
