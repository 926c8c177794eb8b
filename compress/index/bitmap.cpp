// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/index/index_coding.hpp"

namespace winnow::compress {

namespace {

/// One bit a position, in 64-bit words. The fewest bytes from a density of about 1/4 on.
std::optional<std::uint64_t> bytes(std::uint64_t count, std::uint64_t k) {
  if (count >> 32 != 0 || k > count) return std::nullopt;
  return kernels::bitmap_bytes(count);
}

}  // namespace

constinit const IndexCoding kBitmapCoding{.id = 3,
                                          .name = "bitmap",
                                          .bytes = bytes,
                                          .seal = kernels::seal_bitmap,
                                          .decode = kernels::bitmap_decode};

}  // namespace winnow::compress
