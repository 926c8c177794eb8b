// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/half.hpp"

#include <atomic>
#include <cmath>

#include "kernels/arithmetic/half.hpp"
#include "kernels/cpu/parallel.hpp"

// Loops without branches, which the compiler turns into its own vectors: they are passes over
// memory, and not on the path of float32 gradients.

namespace winnow::kernels::cpu {

namespace {

/// out[i] = convert(in[i]), by all threads.
template <class In, class Out, class Convert>
void convert_all(const Exec& exec, std::span<const In> in, std::span<Out> out,
                 const Convert& convert) {
  for_each_range(exec.threads, in.size(), [&](std::size_t begin, std::size_t end) {
    const In* const from = in.data();
    Out* const to = out.data();
    for (std::size_t i = begin; i < end; ++i) to[i] = convert(from[i]);
  });
}

}  // namespace

void widen(const Exec& exec, ElementType type, std::span<const std::uint16_t> in,
           std::span<float> out) {
  if (type == ElementType::bf16) {
    convert_all(exec, in, out, [](std::uint16_t x) { return widen_bf16(x); });
  } else {
    convert_all(exec, in, out, [](std::uint16_t x) { return widen_fp16(x); });
  }
}

void narrow(const Exec& exec, ElementType type, std::span<const float> in,
            std::span<std::uint16_t> out) {
  if (type == ElementType::bf16) {
    convert_all(exec, in, out, [](float x) { return narrow_bf16(x); });
  } else {
    convert_all(exec, in, out, [](float x) { return narrow_fp16(x); });
  }
}

void fits(const Exec& exec, ElementType type, std::span<const float> in, float factor,
          std::uint32_t* too_large) {
  const float limit = overflow_of(type);
  std::atomic<bool> all{true};
  for_each_range(exec.threads, in.size(), [&](std::size_t begin, std::size_t end) {
    bool fit = true;
    for (std::size_t i = begin; i < end; ++i) fit &= std::fabs(in[i] * factor) < limit;
    if (!fit) all.store(false, std::memory_order_relaxed);
  });
  if (!all.load(std::memory_order_relaxed)) *too_large = 1;
}

}  // namespace winnow::kernels::cpu
