// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <winnow/error.hpp>

#include "kernels/arithmetic/value.hpp"
#include "kernels/arithmetic/value_layout.hpp"
#include "kernels/cuda/aligned.hpp"
#include "kernels/ordered_sum.hpp"

namespace winnow::kernels::cuda {

/// Values in device memory, as a kernel is told of them. Those that are not coded are float32
/// codes.
struct DeviceValues {
  const float* scales;
  const std::byte* codes;
  std::uint8_t coding;       ///< by id
  std::uint8_t block_shift;  ///< log2 of the values that share a scale
};

inline DeviceValues device_values(std::span<const float> value) {
  return {nullptr, std::as_bytes(value).data(), values::Float32::kLine.id, 0};
}

inline DeviceValues device_values(const ValueFormat& format, std::uint64_t k,
                                  std::span<const std::byte> coded) {
  const ValueLayout layout(format, k);
  WINNOW_EXPECTS(coded.size() == layout.bytes, "coded values must have value_bytes bytes");
  expect_word_aligned(coded);
  return {reinterpret_cast<const float*>(coded.data()), coded.data() + layout.scale_bytes,
          format.coding->id,
          static_cast<std::uint8_t>(format.block == 0 ? 0 : std::countr_zero(format.block))};
}

/// What one rank adds to a sum, as a kernel is told of it.
struct DeviceTerm {
  DeviceValues values;
  std::uint64_t count;         ///< of values
  bool is_list;                ///< else there is a value at every position from 0 on
  const std::uint32_t* index;  ///< of a list, as many as values
};

/// Of a term whose memory is of the device. In one more form than the host knows: `coded` may also
/// be the values of a list, one for each index; it is 8-byte aligned. A term without values is a
/// list without entries.
inline DeviceTerm device_term(const Term& term) {
  const bool is_coded = !term.coded.empty();
  const std::uint64_t count = is_coded ? term.count : term.value.size();
  WINNOW_EXPECTS(term.index.empty() || term.index.size() == count,
                 "a list needs as many values as indices");
  return {is_coded ? device_values(term.format, count, term.coded) : device_values(term.value),
          count, !term.index.empty() || count == 0, term.index.data()};
}

}  // namespace winnow::kernels::cuda
