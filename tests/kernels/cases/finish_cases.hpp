// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "compress/message.hpp"
#include "kernels/finish_message.hpp"
#include "lab/reference/place.hpp"
#include "tests/kernels/answers.hpp"

namespace winnow::tests {

using compress::Header;
using compress::kHeaderLayout;
using kernels::HeaderBytes;

/// Finishes a message of kHeaderLayout by a body, with any indices.
using FinishIndicesBody = std::function<void(std::span<std::byte> message, const HeaderBytes&)>;

/// Fills `index_part` with the index part that a body of finish_message writes into a message with
/// values. The message ends with half a word. Checks the header, the values and the checksum, too.
inline void finish_indices(std::span<std::byte> index_part, const FinishIndicesBody& body) {
  constexpr std::size_t kValueBytes = 12;
  std::vector<std::uint64_t> memory(
      (kernels::kHeaderBytes + index_part.size() + kValueBytes + 7) / 8, 0xa5a5a5a5a5a5a5a5U);
  const auto message = std::as_writable_bytes(std::span(memory))
                           .first(kernels::kHeaderBytes + index_part.size() + kValueBytes);
  HeaderBytes header;
  for (std::size_t i = 0; i < header.size(); ++i) header[i] = static_cast<std::byte>(7 * i + 1);
  body(message, header);
  const auto written = message.first(header.size());
  const auto checksum_in = [](auto bytes) {
    return bytes.subspan(offsetof(Header, checksum), sizeof(std::uint64_t));
  };
  std::uint64_t told = 0;
  std::ranges::copy(checksum_in(written), std::as_writable_bytes(std::span(&told, 1)).begin());
  std::ranges::fill(checksum_in(written), std::byte{0});
  EXPECT_EQ(told, checksum_of({.place = lab::kReference}, message));
  std::ranges::fill(checksum_in(std::span(header)), std::byte{0});
  EXPECT_TRUE(std::ranges::equal(written, header));
  EXPECT_TRUE(std::ranges::all_of(message.last(kValueBytes),
                                  [](std::byte byte) { return byte == std::byte{0xa5}; }));
  std::ranges::copy(message.subspan(header.size(), index_part.size()), index_part.begin());
}

}  // namespace winnow::tests
