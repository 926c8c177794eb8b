// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <winnow/error.hpp>

#include "kernels/arithmetic/value.hpp"
#include "kernels/arithmetic/value_layout.hpp"
#include "kernels/dispatch/expect_message.hpp"
#include "kernels/terms.hpp"

namespace winnow::kernels::cuda {

/// Values in device memory, as a kernel is told of them. Values that are not coded are float32
/// codes.
struct DeviceValues {
  const float* scales;  ///< null if the coding has none
  const std::byte* codes;
  std::uint8_t coding;       ///< by id
  std::uint8_t block_shift;  ///< log2 of the values that share a scale
  std::uint8_t bits;         ///< of a code
};

inline DeviceValues device_values(std::span<const float> value) {
  return {nullptr, std::as_bytes(value).data(), values::Float32::kLine.id, 0,
          static_cast<std::uint8_t>(values::Float32::kLine.bits)};
}

inline DeviceValues device_values(const ValueFormat& format, std::uint64_t k,
                                  std::span<const std::byte> coded) {
  const ValueLayout layout(format, k);
  WINNOW_EXPECTS(coded.size() == layout.bytes, "coded values must have value_bytes bytes");
  expect_word_aligned(coded);
  return {format.block == 0 ? nullptr : reinterpret_cast<const float*>(coded.data()),
          coded.data() + layout.scale_bytes, format.coding->id,
          static_cast<std::uint8_t>(format.block == 0 ? 0 : std::countr_zero(format.block)),
          static_cast<std::uint8_t>(format.coding->bits)};
}

/// One rank's term of a sum, as kernels take it.
struct DeviceTerm {
  DeviceValues values;
  std::uint64_t count;         ///< of values
  bool is_list;                ///< else there is a value at every position from 0 on
  const std::uint32_t* index;  ///< of a list, as many as values
};

/// For a term in device memory.
inline DeviceTerm device_term(const Term& term) {
  const std::uint64_t count = term.size();
  WINNOW_EXPECTS(term.index.empty() || term.index.size() == count,
                 "a list needs as many values as indices");
  return {
      term.is_coded() ? device_values(term.format, count, term.coded) : device_values(term.value),
      count, term.is_list(), term.index.data()};
}

/// The terms in device memory: where they are placed, or else in scratch of the caller's Scope.
inline const DeviceTerm* device_terms(const Exec& exec, const PlacedTerms& terms) {
  return terms.placed != nullptr ? terms.placed : kernels::place_terms(exec, terms.host).placed;
}

}  // namespace winnow::kernels::cuda
