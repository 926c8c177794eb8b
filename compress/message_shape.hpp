// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "compress/message.hpp"

namespace winnow::compress {

// Shared by the writer and the reader of messages.

/// shape_of, or nothing if no message can carry k of count elements. Safe for any 64-bit numbers.
std::optional<Shape> find_shape(std::uint64_t count, std::uint64_t k, const Codings& codings);

/// The value coding as it travels.
std::uint8_t value_byte(const kernels::ValueFormat& format);
/// That byte in words, e.g. "int8:block=128".
std::string value_text(std::uint8_t byte);

std::string hex(std::uint64_t number);

inline bool is_aligned(const std::byte* memory) {
  return reinterpret_cast<std::uintptr_t>(memory) % 8 == 0;
}

/// The message at `bytes`, whose complete header and shape are known. `index` is where its indices
/// are decoded.
MessageView view_of(const Header& header, const Shape& shape, std::span<const std::uint32_t> index,
                    std::span<const std::byte> bytes, const Codings& codings);

}  // namespace winnow::compress
