// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/residual_add.cuh"
#include "kernels/residual_add.hpp"

namespace winnow::kernels::cuda {

namespace {

/// Waves of blocks: with several, multiprocessors that finish early have more to fetch.
constexpr unsigned kWaves = 4;

/// Floats from `pointer` to the next multiple of 16 bytes.
std::size_t floats_to_alignment(const float* pointer) {
  const auto past = reinterpret_cast<std::uintptr_t>(pointer) % 16 / sizeof(float);
  return past == 0 ? 0 : 4 - past;
}

}  // namespace

void residual_add(const Exec& exec, std::span<float> residual, std::span<const float> gradient) {
  const std::size_t count = residual.size();
  if (count == 0) return;
  const std::size_t head = std::min(floats_to_alignment(residual.data()), count);
  const ResidualAddTask task{residual.data(), gradient.data(), head, count};
  if (head == std::min(floats_to_alignment(gradient.data()), count)) {
    launch<AddVectors>(exec, blocks_of(count / 4, kWaves), {task});
  } else {
    launch<AddFloats>(exec, blocks_of(count, kWaves), {task});
  }
}

}  // namespace winnow::kernels::cuda
