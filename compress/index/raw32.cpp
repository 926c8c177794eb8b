// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/index/index_coding.hpp"

namespace winnow::compress {

namespace {

/// 32 bits an index, the last 8 bytes filled up with zeros.
std::optional<std::uint64_t> bytes(std::uint64_t count, std::uint64_t k) {
  if (count >> 32 != 0 || k > count) return std::nullopt;
  return kernels::raw32_bytes(k);
}

}  // namespace

constinit const IndexCoding kRaw32Coding{.id = 1,
                                         .name = "raw32",
                                         .bytes = bytes,
                                         .seal = kernels::seal_raw32,
                                         .decode = kernels::raw32_decode};

}  // namespace winnow::compress
