// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/index/index_coding.hpp"

#include <array>

namespace winnow::compress {

namespace {

/// No index part: the positions are 0, 1, ..., count - 1.
constexpr IndexCoding kNoneCoding{
    .id = 0,
    .name = "none",
    .bytes = [](std::uint64_t count, std::uint64_t k) -> std::optional<std::uint64_t> {
      if (k != count) return std::nullopt;
      return 0;
    },
    .seal = kernels::seal,
    .decode = nullptr,
};

constexpr std::array<const IndexCoding*, 4> kTable{&kNoneCoding, &kRaw32Coding, &kEliasFanoCoding,
                                                   &kBitmapCoding};

}  // namespace

std::span<const IndexCoding* const> index_codings() {
  return kTable;
}

const IndexCoding* choose_index_coding(std::uint64_t count, std::uint64_t k) {
  const IndexCoding* best = nullptr;
  std::uint64_t fewest = 0;
  for (const IndexCoding* coding : kTable) {
    const std::optional<std::uint64_t> bytes = coding->bytes(count, k);
    if (!bytes || (best != nullptr && *bytes >= fewest)) continue;
    best = coding;
    fewest = *bytes;
  }
  return best;
}

std::string_view index_coding_name(std::uint8_t id) {
  return id < kTable.size() ? kTable[id]->name : "unknown";
}

}  // namespace winnow::compress
