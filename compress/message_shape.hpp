// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "compress/message.hpp"

namespace winnow::compress {

// Shared by the writer and the reader of messages.

/// The sizes that (count, k) and the requested codings determine.
struct Shape {
  const IndexCoding* coding;
  std::uint64_t index_bytes, value_bytes;
  std::uint64_t bytes() const { return sizeof(Header) + index_bytes + value_bytes; }
};

/// Nothing if no message can carry k of count elements. Safe for any 64-bit numbers. If all is
/// carried there is no index part, whatever coding was requested.
std::optional<Shape> shape_of(std::uint64_t count, std::uint64_t k, const Codings& codings);

/// The value coding as it travels.
std::uint8_t value_byte(const kernels::ValueFormat& format);
/// That byte in words, e.g. "int8:block=128".
std::string value_text(std::uint8_t byte);

std::string hex(std::uint64_t number);

inline bool is_aligned(const std::byte* memory) {
  return reinterpret_cast<std::uintptr_t>(memory) % 8 == 0;
}

/// The message at `bytes`, of which a complete header is known. `index` is where its indices are
/// decoded.
MessageView view_of(const Header& header, std::span<const std::uint32_t> index,
                    std::span<const std::byte> bytes, const Codings& codings);

}  // namespace winnow::compress
