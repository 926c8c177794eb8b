// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/checksum.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/half.hpp"
#include "kernels/value_coding.hpp"

namespace winnow::tests {

// Operations whose answer is a word, called at a place of the host.

inline bool is_all_finite(const Exec& exec, std::span<const float> elements) {
  std::uint32_t not_finite = 0;
  kernels::all_finite(exec, elements, &not_finite);
  return not_finite == 0;
}

/// Clips sums as they are for elements of a type; whether none was too large.
inline bool clip(const Exec& exec, ElementType type, std::span<float> sums) {
  std::vector<float> residual(sums.size());
  std::uint32_t too_large = 0;
  kernels::keep_rest(exec,
                     {.type = type, .sums = sums, .residual = residual, .too_large = &too_large});
  return too_large == 0;
}

inline std::uint64_t checksum_of(const Exec& exec, std::span<const std::byte> bytes) {
  std::uint64_t sum = 0;
  kernels::checksums(exec, {&bytes, 1}, &sum);
  return sum;
}

inline bool are_sound_values(const Exec& exec, const kernels::ValueFormat& format, std::uint64_t k,
                             std::span<const std::byte> coded) {
  std::uint32_t refused = 0;
  const kernels::CheckValuesJob job{k, coded, &refused};
  kernels::check_values(exec, format, {&job, 1});
  return refused == 0;
}

}  // namespace winnow::tests
