// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <winnow/error.hpp>

#include "kernels/cuda/half.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/half.hpp"

namespace winnow::kernels::cuda {

void widen(const Exec& exec, ElementType type, std::span<const std::uint16_t> in,
           std::span<float> out) {
  if (in.empty()) return;
  visit_half(type, [&](auto half) {
    launch<Widen<decltype(half)>>(exec, blocks_of((in.size() + 3) / 4),
                                  {in.data(), out.data(), in.size()});
  });
}

void narrow(const Exec& exec, ElementType type, std::span<const float> in,
            std::span<std::uint16_t> out) {
  if (in.empty()) return;
  visit_half(type, [&](auto half) {
    launch<Narrow<decltype(half)>>(exec, blocks_of((in.size() + 3) / 4),
                                   {in.data(), out.data(), in.size()});
  });
}

void fits(const Exec& exec, ElementType type, std::span<const float> in, float factor,
          std::uint32_t* too_large) {
  if (in.empty()) return;
  visit_half(type, [&](auto half) {
    launch<Fits<decltype(half)>>(exec, blocks_of((in.size() + 3) / 4),
                                 {in.data(), in.size(), factor, too_large});
  });
}

}  // namespace winnow::kernels::cuda
