// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <winnow/elements.hpp>
#include <winnow/exec.hpp>

#include "kernels/arithmetic/rest.hpp"

namespace winnow::kernels {

/// out[i] = in[i], exactly; infinities stay, a NaN stays one. `type` is bf16 or fp16.
void widen(const Exec& exec, ElementType type, std::span<const std::uint16_t> in,
           std::span<float> out);

/// out[i] = in[i], rounded to nearest even; what is too large becomes infinite.
void narrow(const Exec& exec, ElementType type, std::span<const float> in,
            std::span<std::uint16_t> out);

/// Sums that narrow is to make elements of `type` of, and a residual of as many elements.
struct RestJob {
  ElementType type;
  std::span<float> sums;
  std::span<float> residual;
  std::uint64_t base = 0;  ///< position of sums[0]
  RestKeeper keeper = {};
  std::uint32_t* too_large;  ///< becomes 1 if a finite sum is too large, else it stays
};

/// A finite sum that narrow would make infinite becomes the largest finite element; where this rank
/// keeps the rest, the residual grows by it. All others stay.
void keep_rest(const Exec& exec, const RestJob& job);

}  // namespace winnow::kernels
