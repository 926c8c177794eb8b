// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/checksum.hpp"

#include <bit>

#include "kernels/dispatch/bodies.hpp"
#include "kernels/dispatch/expect_message.hpp"

namespace winnow::kernels {

static_assert(std::endian::native == std::endian::little, "messages are little-endian in memory");

void checksums(const Exec& exec, std::span<const std::span<const std::byte>> messages,
               std::uint64_t* sums) {
  for (const std::span<const std::byte> message : messages) {
    WINNOW_EXPECTS(message.size() % 4 == 0, "checksum of bytes that are not whole 32-bit words");
    expect_word_aligned(message);
  }
  WINNOW_EXPECTS(messages.empty() || (sums != nullptr &&
                                      reinterpret_cast<std::uintptr_t>(sums) % sizeof *sums == 0),
                 "checksums need an 8-byte aligned place for the sums");
  dispatch(exec, &Bodies::checksums, messages, sums);
}

}  // namespace winnow::kernels
