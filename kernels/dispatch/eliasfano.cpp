// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/eliasfano.hpp"

#include <bit>

#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

static_assert(std::endian::native == std::endian::little, "messages are little-endian in memory");

namespace reference {
void eliasfano_encode(const Exec&, std::uint64_t, std::span<const std::uint32_t>,
                      std::span<std::byte>);
bool eliasfano_decode(const Exec&, std::uint64_t, std::span<const std::byte>,
                      std::span<std::uint32_t>);
}  // namespace reference

namespace cpu {
void eliasfano_encode(const Exec&, std::uint64_t, std::span<const std::uint32_t>,
                      std::span<std::byte>);
bool eliasfano_decode(const Exec&, std::uint64_t, std::span<const std::byte>,
                      std::span<std::uint32_t>);
}  // namespace cpu

EliasFanoShape eliasfano_shape(std::uint64_t count, std::uint64_t k) {
  WINNOW_EXPECTS(count <= std::uint64_t{1} << 32 && k <= count,
                 "Elias-Fano codes at most count <= 2^32 indices; got count " +
                     std::to_string(count) + ", k " + std::to_string(k));
  const auto part_bytes = [](std::uint64_t bits) { return (bits + 63) / 64 * 8; };
  EliasFanoShape best{0, 0, part_bytes(k + count + 1)};
  for (std::uint32_t l = 1; l < 32; ++l) {
    const EliasFanoShape shape{l, part_bytes(k * l), part_bytes(k + (count >> l) + 1)};
    if (shape.bytes() < best.bytes()) best = shape;
  }
  return best;
}

void eliasfano_encode(const Exec& exec, std::uint64_t count, std::span<const std::uint32_t> index,
                      std::span<std::byte> out) {
  WINNOW_EXPECTS(
      out.size() == eliasfano_shape(count, index.size()).bytes(),
      "Elias-Fano output of " + std::to_string(out.size()) + " bytes is not the shape's");
  dispatch_on_host(exec, reference::eliasfano_encode, cpu::eliasfano_encode, NoBody{}, count, index,
                   out);
}

bool eliasfano_decode(const Exec& exec, std::uint64_t count, std::span<const std::byte> in,
                      std::span<std::uint32_t> index) {
  if (in.size() != eliasfano_shape(count, index.size()).bytes()) return false;
  return dispatch_on_host(exec, reference::eliasfano_decode, cpu::eliasfano_decode, NoBody{}, count,
                          in, index);
}

}  // namespace winnow::kernels
