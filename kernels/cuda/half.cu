// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <winnow/error.hpp>

#include "kernels/cuda/half.cuh"
#include "kernels/cuda/launch_pieces.cuh"
#include "kernels/half.hpp"

namespace winnow::kernels::cuda {

void widen(const Exec& exec, ElementType type, std::span<const std::uint16_t> in,
           std::span<float> out) {
  visit_half(type, [&](auto half) {
    launch_piece(exec, Widen<decltype(half)>{in.data(), out.data(), in.size()});
  });
}

void narrow(const Exec& exec, ElementType type, std::span<const float> in,
            std::span<std::uint16_t> out) {
  visit_half(type, [&](auto half) {
    launch_piece(exec, Narrow<decltype(half)>{in.data(), out.data(), in.size()});
  });
}

void fits(const Exec& exec, ElementType type, std::span<const float> in, float factor,
          std::uint32_t* too_large) {
  visit_half(type, [&](auto half) {
    launch_piece(exec, Fits<decltype(half)>{in.data(), in.size(), factor, too_large});
  });
}

}  // namespace winnow::kernels::cuda
