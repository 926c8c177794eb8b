// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/half.hpp"

#include <algorithm>
#include <atomic>

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

void keep_rest(const Exec& exec, const RestJob& job) {
  const ElementRange range = range_of(job.type);
  std::atomic<bool> any{false};
  for_each_range(exec.threads, job.sums.size(), [&](std::size_t begin, std::size_t end) {
    constexpr std::size_t kTile = 4096;  // few sums are too large: mostly this only looks
    for (; begin < end; begin += std::min(kTile, end - begin)) {
      const auto tile = job.sums.subspan(begin, std::min(kTile, end - begin));
      bool exceeded = false;
      for (const float sum : tile) exceeded |= range.exceeded_by(sum);
      if (!exceeded) continue;
      any.store(true, std::memory_order_relaxed);
      for (std::size_t i = begin; i < begin + tile.size(); ++i) {
        const float sum = job.sums[i];
        if (!range.exceeded_by(sum)) continue;
        job.sums[i] = range.clip(sum);
        if (!job.keeper.keeps(job.base + i)) continue;
        job.residual[i] = job.keeper.add_rest(job.residual[i], sum, range);
      }
    }
  });
  if (any.load(std::memory_order_relaxed)) *job.too_large = 1;
}

}  // namespace winnow::kernels::cpu
