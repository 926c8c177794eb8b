// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/memory_ops.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/arithmetic/element.hpp"
#include "kernels/cpu/parallel.hpp"

namespace winnow::kernels::cpu {

void fill(const Exec& exec, const Elements& elements, float value) {
  for_each_range(exec.threads, elements.size(), [&](std::size_t begin, std::size_t end) {
    const Elements range = elements.subspan(begin, end - begin);
    if (range.type() == ElementType::float32) {
      std::ranges::fill(range.floats(), value);
    } else if (range.size() > 0) {
      (void)write_element(range, 0, value);
      std::ranges::fill(range.halves(), range.halves()[0]);
    }
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
