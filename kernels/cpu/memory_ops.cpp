// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/memory_ops.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/parallel.hpp"

namespace winnow::kernels::cpu {

void fill(const Exec& exec, std::span<float> elements, float value) {
  for_each_range(exec.threads, elements.size(), [&](std::size_t begin, std::size_t end) {
    std::fill(elements.data() + begin, elements.data() + end, value);
  });
}

void copy(const Exec& exec, std::span<std::byte> to, std::span<const std::byte> from) {
  for_each_range(exec.threads, to.size(), [&](std::size_t begin, std::size_t end) {
    if (begin < end) std::memcpy(to.data() + begin, from.data() + begin, end - begin);
  });
}

void store(const Exec&, std::span<std::byte> to, std::span<const std::byte> from) {
  std::ranges::copy(from, to.begin());
}

void zero(const Exec&, std::span<std::byte> bytes) {
  std::ranges::fill(bytes, std::byte{});
}

}  // namespace winnow::kernels::cpu
