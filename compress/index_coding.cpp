// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/index_coding.hpp"

#include <array>

namespace winnow::compress {

namespace {

std::uint64_t no_bytes(std::uint64_t, std::uint64_t) {
  return 0;
}

constexpr std::array<const IndexCoding*, 5> kTable{&kNoneCoding, &kRaw32Coding, &kEliasFanoCoding,
                                                   &kBitmapCoding, &kSeededCoding};

}  // namespace

/// No index part: the positions are 0, 1, ..., count - 1.
constinit const IndexCoding kNoneCoding{.id = 0,
                                        .name = "none",
                                        .index_bytes = no_bytes,
                                        .finish = kernels::finish_message,
                                        .decode = nullptr};

/// 32 bits an index.
constinit const IndexCoding kRaw32Coding{
    .id = 1,
    .name = "raw32",
    .index_bytes = [](std::uint64_t, std::uint64_t k) { return kernels::raw32_bytes(k); },
    .finish = kernels::finish_raw32,
    .decode = kernels::raw32_decode};

constinit const IndexCoding kEliasFanoCoding{
    .id = 2,
    .name = "eliasfano",
    .index_bytes = [](std::uint64_t count,
                      std::uint64_t k) { return kernels::eliasfano_shape(count, k).bytes(); },
    .finish = kernels::finish_eliasfano,
    .decode = kernels::eliasfano_decode};

/// One bit a position. The fewest bytes from a density of about 1/4 on.
constinit const IndexCoding kBitmapCoding{
    .id = 3,
    .name = "bitmap",
    .index_bytes = [](std::uint64_t count, std::uint64_t) { return kernels::bitmap_bytes(count); },
    .finish = kernels::finish_bitmap,
    .decode = kernels::bitmap_decode};

/// Every rank draws the positions from the header's call and part, count and k.
constinit const IndexCoding kSeededCoding{.id = 4,
                                          .name = "seeded",
                                          .index_bytes = no_bytes,
                                          .finish = kernels::finish_message,
                                          .decode = kernels::seeded_decode,
                                          .drawn = true};

std::span<const IndexCoding* const> index_codings() {
  return kTable;
}

const IndexCoding* choose_index_coding(std::uint64_t count, std::uint64_t k) {
  const IndexCoding* best = nullptr;
  std::uint64_t fewest = 0;
  for (const IndexCoding* coding : kTable) {
    if (coding->drawn) continue;
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
