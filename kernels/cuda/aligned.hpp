// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/error.hpp>

namespace winnow::kernels::cuda {

/// Device code reads and writes messages by words of 64 bits; one that is not aligned to them would
/// break the context for all that comes after.
inline void expect_word_aligned(std::span<const std::byte> message) {
  WINNOW_EXPECTS(reinterpret_cast<std::uintptr_t>(message.data()) % 8 == 0,
                 "a message in device memory must be 8-byte aligned");
}

}  // namespace winnow::kernels::cuda
