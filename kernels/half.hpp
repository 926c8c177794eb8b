// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <winnow/elements.hpp>
#include <winnow/exec.hpp>

namespace winnow::kernels {

/// out[i] = in[i], exactly; infinities stay, a NaN stays one. `type` is bf16 or fp16.
void widen(const Exec& exec, ElementType type, std::span<const std::uint16_t> in,
           std::span<float> out);

/// out[i] = in[i], rounded to nearest even; what is too large becomes infinite.
void narrow(const Exec& exec, ElementType type, std::span<const float> in,
            std::span<std::uint16_t> out);

/// *too_large becomes 1 if narrow would not make a finite number of some in[i] * factor, else it
/// stays.
void fits(const Exec& exec, ElementType type, std::span<const float> in, float factor,
          std::uint32_t* too_large);

}  // namespace winnow::kernels
