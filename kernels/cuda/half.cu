// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <bit>

#include "kernels/cuda/half.cuh"
#include "kernels/cuda/launch_pieces.cuh"
#include "kernels/half.hpp"

namespace winnow::kernels::cuda {

void widen(const Exec& exec, ElementType type, std::span<const std::uint16_t> in,
           std::span<float> out) {
  const ConstElements halves(in.data(), in.size(), type);
  launch_piece(exec, Widen{device_elements(halves), out.data(), in.size()});
}

void narrow(const Exec& exec, ElementType type, std::span<const float> in,
            std::span<std::uint16_t> out) {
  const Elements halves(out.data(), out.size(), type);
  launch_piece(exec, Narrow{in.data(), device_elements(halves), in.size()});
}

void fits(const Exec& exec, ElementType type, std::span<const float> in, float factor,
          std::uint32_t* too_large) {
  launch_piece(exec, Fits{in.data(), in.size(), factor,
                          std::bit_cast<std::uint32_t>(overflow_of(type)), too_large});
}

}  // namespace winnow::kernels::cuda
