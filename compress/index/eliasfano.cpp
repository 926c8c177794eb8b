// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/index/index_coding.hpp"

namespace winnow::compress {

namespace {

std::optional<std::uint64_t> bytes(std::uint64_t count, std::uint64_t k) {
  if (count >> 32 != 0 || k > count) return std::nullopt;
  return kernels::eliasfano_shape(count, k).bytes();
}

}  // namespace

constinit const IndexCoding kEliasFanoCoding{.id = 2,
                                             .name = "eliasfano",
                                             .bytes = bytes,
                                             .seal = kernels::seal_eliasfano,
                                             .decode = kernels::eliasfano_decode};

}  // namespace winnow::compress
