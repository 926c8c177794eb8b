// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <winnow/exec.hpp>

namespace winnow::compress {

/// How the positions of a message are written. A line of the table of index codings.
struct IndexCoding {
  std::uint8_t id;  ///< as it travels; never given to another coding
  std::string_view name;
  /// Bytes of the index part, a multiple of 8; nothing where the coding cannot carry (count, k).
  /// Safe for any 64-bit numbers.
  std::optional<std::uint64_t> (*bytes)(std::uint64_t count, std::uint64_t k);
  /// Writes all bytes(count, index.size()) bytes of `out`; index ascends below count.
  void (*encode)(const Exec& exec, std::uint64_t count, std::span<const std::uint32_t> index,
                 std::span<std::byte> out);
  /// Reads index.size() indices; false for bytes that encode would not have written.
  bool (*decode)(const Exec& exec, std::uint64_t count, std::span<const std::byte> in,
                 std::span<std::uint32_t> index);
};

extern const IndexCoding kRaw32Coding, kEliasFanoCoding, kBitmapCoding;

/// All codings, by id. Id 0, `none`, is that of a message that carries every position.
std::span<const IndexCoding* const> index_codings();

/// The coding with the fewest bytes for (count, k), the first in the table among equals; null where
/// none can carry them. The same on all ranks.
const IndexCoding* choose_index_coding(std::uint64_t count, std::uint64_t k);

/// The coding's name, or "unknown".
std::string_view index_coding_name(std::uint8_t id);

}  // namespace winnow::compress
