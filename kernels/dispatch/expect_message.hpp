// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/error.hpp>

#include "kernels/message_header.hpp"

namespace winnow::kernels {

/// Kernels read and write messages by words of 64 bits; on a device one that is not aligned to them
/// would break the context for all that comes after.
inline void expect_word_aligned(std::span<const std::byte> message) {
  WINNOW_EXPECTS(reinterpret_cast<std::uintptr_t>(message.data()) % 8 == 0,
                 "a message must be 8-byte aligned");
}

inline void expect_header(std::span<const std::byte> message) {
  WINNOW_EXPECTS(message.size() >= kHeaderBytes, "a message is no shorter than its header");
  expect_word_aligned(message);
}

inline void expect_layout(const HeaderLayout& layout) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  const auto is_word = [](std::size_t at) { return at % kWord == 0 && at < kHeaderBytes; };
  WINNOW_EXPECTS(layout.flags_at % 2 == 0 && layout.flags_at < kHeaderBytes &&
                     is_word(layout.checksum_at) && is_word(layout.k_at) &&
                     is_word(layout.call_at) &&
                     layout.flags_at / kWord != layout.checksum_at / kWord,
                 "a header's flags lie at a multiple of 2, k, the call and, apart from the flags, "
                 "its checksum at one of 8");
}

}  // namespace winnow::kernels
