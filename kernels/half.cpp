// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/half.hpp"

#include "kernels/cuda/half.hpp"
#include "kernels/exec/dispatch.hpp"
#include "kernels/exec/place_memory.hpp"

namespace winnow::kernels {

namespace reference {
void widen(const Exec& exec, ElementType type, std::span<const std::uint16_t> in,
           std::span<float> out);
void narrow(const Exec& exec, ElementType type, std::span<const float> in,
            std::span<std::uint16_t> out);
bool fits(const Exec& exec, ElementType type, std::span<const float> in, float factor);
}  // namespace reference
namespace cpu {
void widen(const Exec& exec, ElementType type, std::span<const std::uint16_t> in,
           std::span<float> out);
void narrow(const Exec& exec, ElementType type, std::span<const float> in,
            std::span<std::uint16_t> out);
bool fits(const Exec& exec, ElementType type, std::span<const float> in, float factor);
}  // namespace cpu

void widen(const Exec& exec, ElementType type, std::span<const std::uint16_t> in,
           std::span<float> out) {
  WINNOW_EXPECTS(in.size() == out.size() && type != ElementType::float32,
                 "widen takes as many 16-bit elements as floats");
  dispatch(exec, reference::widen, cpu::widen, cuda::widen, type, in, out);
}

void narrow(const Exec& exec, ElementType type, std::span<const float> in,
            std::span<std::uint16_t> out) {
  WINNOW_EXPECTS(in.size() == out.size() && type != ElementType::float32,
                 "narrow takes as many floats as 16-bit elements");
  dispatch(exec, reference::narrow, cpu::narrow, cuda::narrow, type, in, out);
}

bool fits(const Exec& exec, ElementType type, std::span<const float> in, float factor) {
  WINNOW_EXPECTS(type == ElementType::bf16 || type == ElementType::fp16,
                 "fits is asked of bf16 or fp16");
  const auto on_device = [](const Exec& there, ElementType to, std::span<const float> given,
                            float by) {
    return answer(there, [&](std::uint32_t* word) { cuda::fits(there, to, given, by, word); }) == 0;
  };
  return dispatch(exec, reference::fits, cpu::fits, on_device, type, in, factor);
}

}  // namespace winnow::kernels
