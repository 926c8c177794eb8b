// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/elementwise.hpp"

#include "kernels/cuda/elementwise.hpp"
#include "kernels/exec/dispatch.hpp"
#include "kernels/exec/place_memory.hpp"

namespace winnow::kernels {

namespace reference {
void scale(const Exec& exec, std::span<float> elements, float factor);
bool all_finite(const Exec& exec, std::span<const float> elements);
}  // namespace reference
namespace cpu {
void scale(const Exec& exec, std::span<float> elements, float factor);
bool all_finite(const Exec& exec, std::span<const float> elements);
}  // namespace cpu

void scale(const Exec& exec, std::span<float> elements, float factor) {
  dispatch(exec, reference::scale, cpu::scale, cuda::scale, elements, factor);
}

bool all_finite(const Exec& exec, std::span<const float> elements) {
  const auto on_device = [](const Exec& there, std::span<const float> given) {
    return answer(there, [&](std::uint32_t* word) { cuda::all_finite(there, given, word); }) == 0;
  };
  return dispatch(exec, reference::all_finite, cpu::all_finite, on_device, elements);
}

}  // namespace winnow::kernels
