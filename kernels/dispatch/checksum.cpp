// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/checksum.hpp"

#include <bit>

#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

static_assert(std::endian::native == std::endian::little, "messages are little-endian in memory");

namespace reference {
std::uint64_t checksum(const Exec&, std::span<const std::byte>);
}
namespace cpu {
std::uint64_t checksum(const Exec&, std::span<const std::byte>);
}

std::uint64_t checksum(const Exec& exec, std::span<const std::byte> bytes) {
  WINNOW_EXPECTS(bytes.size() % 4 == 0, "checksum of bytes that are not whole 32-bit words");
  return dispatch_on_host(exec, reference::checksum, cpu::checksum, NoBody{}, bytes);
}

}  // namespace winnow::kernels
