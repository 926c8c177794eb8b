// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <winnow/exec.hpp>

#include "kernels/finish_message.hpp"
#include "kernels/index_coding.hpp"

namespace winnow::compress {

/// How the positions of a message are written. A line of the table of index codings.
struct IndexCoding {
  std::uint8_t id;  ///< as it travels; never given to another coding
  std::string_view name;
  /// Bytes of the index part, a multiple of 8, for k <= count <= 2^32.
  std::uint64_t (*index_bytes)(std::uint64_t count, std::uint64_t k);
  /// Completes a message, whose index part has as many bytes.
  void (*finish)(const Exec& exec, const kernels::FinishJob& job);
  /// Reads index parts. Null for `none`, which has no index part.
  void (*decode)(const Exec& exec, std::span<const kernels::DecodeJob> jobs);
  /// `decode` draws the positions from DecodeJob::key: only messages of a selection that draws have
  /// this coding.
  bool drawn = false;

  /// Bytes of the index part; nothing where the coding cannot carry k of count positions. Safe for
  /// any 64-bit numbers.
  std::optional<std::uint64_t> bytes(std::uint64_t count, std::uint64_t k) const {
    if (decode == nullptr ? k != count : count >> 32 != 0 || k > count) return std::nullopt;
    return index_bytes(count, k);
  }
};

/// `none` marks a message that carries every position.
extern const IndexCoding kNoneCoding, kRaw32Coding, kEliasFanoCoding, kBitmapCoding, kSeededCoding;

/// All codings, by id.
std::span<const IndexCoding* const> index_codings();

/// The coding with the fewest bytes for (count, k), the first in the table among equals; null where
/// none can carry them. The same on all ranks.
const IndexCoding* choose_index_coding(std::uint64_t count, std::uint64_t k);

/// The coding's name, or "unknown".
std::string_view index_coding_name(std::uint8_t id);

}  // namespace winnow::compress
