// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <winnow/error.hpp>

#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/launch_pieces.cuh"
#include "kernels/elementwise.hpp"

namespace winnow::kernels::cuda {

void scale(const Exec& exec, std::span<float> elements, float factor) {
  launch_piece(exec, Scale{elements.data(), elements.size(), factor});
}

void look_ahead(const Exec& exec, std::span<const float> weights, std::span<const float> residual,
                float share, std::span<float> ahead) {
  if (ahead.empty()) return;
  launch<LookAhead>(exec, blocks_of((ahead.size() + 3) / 4),
                    {weights.data(), residual.data(), share, ahead.data(), ahead.size()});
}

void divide_by_moment(const Exec& exec, std::span<float> gradient, std::span<float> moment,
                      const SecondMomentStep& by) {
  launch_piece(exec, DivideByMoment{gradient.data(), moment.data(), gradient.size(), by});
}

void correct_momentum(const Exec& exec, std::span<float> gradient, std::span<float> moment,
                      std::span<const float> residual, const MomentumStep& by) {
  launch_piece(
      exec, CorrectMomentum{gradient.data(), moment.data(), residual.data(), gradient.size(), by});
}

void all_finite(const Exec& exec, std::span<const float> elements, std::uint32_t* not_finite) {
  if (elements.empty()) return;
  launch<AllFinite>(exec, blocks_of((elements.size() + 3) / 4),
                    {elements.data(), elements.size(), not_finite});
}

}  // namespace winnow::kernels::cuda
