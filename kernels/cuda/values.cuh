// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <tuple>
#include <type_traits>

#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/terms.hpp"

namespace winnow::kernels::cuda {

namespace detail {
template <class Body, class... Codings>
WINNOW_DEVICE void with_coding(std::uint8_t id, const Body& body, const std::tuple<Codings...>*) {
  ((id == std::integral_constant<std::uint8_t, Codings::kLine.id>::value ? body(Codings{})
                                                                         : void()),
   ...);
}
}  // namespace detail

/// Calls body(Coding{}) with the coding of the values, so that loops over them stand inside of the
/// choice.
template <class Body>
WINNOW_DEVICE void with_coding(const DeviceValues& values, const Body& body) {
  detail::with_coding(values.coding, body, static_cast<const values::All*>(nullptr));
}

/// Code number j.
template <class Coding>
WINNOW_DEVICE std::uint32_t code_at(const std::byte* codes, std::uint64_t j) {
  constexpr std::uint32_t kBits = Coding::kLine.bits;
  using Word = std::conditional_t<kBits == 32, std::uint32_t,
                                  std::conditional_t<kBits == 16, std::uint16_t, std::uint8_t>>;
  std::uint32_t code = 0;
  if constexpr (kBits > 0) code = simt::load_word<Word>(codes + j * kBits / 8);
  if constexpr (kBits > 0 && kBits < 8) code = code >> j * kBits % 8 & ((1U << kBits) - 1);
  return code;
}

/// Value number j.
template <class Coding>
WINNOW_DEVICE float value_at(const DeviceValues& values, std::uint64_t j) {
  float scale = 0;
  if constexpr (Coding::kLine.default_block != 0) scale = values.scales[j >> values.block_shift];
  return Coding::decode(code_at<Coding>(values.codes, j), scale);
}

}  // namespace winnow::kernels::cuda
