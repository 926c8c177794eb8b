// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "compress/index/index_coding.hpp"

namespace winnow::compress {

namespace {

/// 32 bits an index, the last 8 bytes filled up with zeros.
std::optional<std::uint64_t> bytes(std::uint64_t count, std::uint64_t k) {
  if (count >> 32 != 0 || k > count) return std::nullopt;
  return (k + 1) / 2 * 8;
}

void encode(const Exec&, std::uint64_t, std::span<const std::uint32_t> index,
            std::span<std::byte> out) {
  const auto used = std::as_bytes(index);
  std::copy(used.begin(), used.end(), out.begin());
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(used.size()), out.end(), std::byte{0});
}

bool decode(const Exec&, std::uint64_t count, std::span<const std::byte> in,
            std::span<std::uint32_t> index) {
  const std::size_t used = index.size_bytes();
  std::uint64_t least = 0;  // that the next index may be
  bool sound = true;
  for (std::size_t i = 0; i < index.size(); ++i) {
    std::memcpy(&index[i], in.data() + 4 * i, 4);
    sound = sound && index[i] >= least && index[i] < count;
    least = std::uint64_t{index[i]} + 1;
  }
  return sound &&
         std::ranges::all_of(in.subspan(used), [](std::byte b) { return b == std::byte{}; });
}

}  // namespace

constinit const IndexCoding kRaw32Coding{
    .id = 1, .name = "raw32", .bytes = bytes, .encode = encode, .decode = decode};

}  // namespace winnow::compress
