// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/memory_ops.hpp"

#include "kernels/cuda/memory_ops.hpp"
#include "kernels/exec/dispatch.hpp"

namespace winnow::kernels {

namespace reference {
void fill(const Exec& exec, std::span<float> elements, float value);
void copy(const Exec& exec, std::span<std::byte> to, std::span<const std::byte> from);
}  // namespace reference
namespace cpu {
void fill(const Exec& exec, std::span<float> elements, float value);
void copy(const Exec& exec, std::span<std::byte> to, std::span<const std::byte> from);
}  // namespace cpu

void fill(const Exec& exec, std::span<float> elements, float value) {
  dispatch(exec, reference::fill, cpu::fill, cuda::fill, elements, value);
}

void copy(const Exec& exec, std::span<std::byte> to, std::span<const std::byte> from) {
  WINNOW_EXPECTS(to.size() == from.size(), "what is copied must be as long as its place");
  dispatch(exec, reference::copy, cpu::copy, cuda::copy, to, from);
}

}  // namespace winnow::kernels
