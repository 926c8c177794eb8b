// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/half.hpp"

#include "kernels/arithmetic/half.hpp"

namespace winnow::kernels::reference {

void widen(const Exec&, ElementType type, std::span<const std::uint16_t> in, std::span<float> out) {
  for (std::size_t i = 0; i < in.size(); ++i) {
    out[i] = type == ElementType::bf16 ? widen_bf16(in[i]) : widen_fp16(in[i]);
  }
}

void narrow(const Exec&, ElementType type, std::span<const float> in,
            std::span<std::uint16_t> out) {
  for (std::size_t i = 0; i < in.size(); ++i) {
    out[i] = type == ElementType::bf16 ? narrow_bf16(in[i]) : narrow_fp16(in[i]);
  }
}

void keep_rest(const Exec&, const RestJob& job) {
  const ElementRange range = range_of(job.type);
  for (std::size_t i = 0; i < job.sums.size(); ++i) {
    const float sum = job.sums[i];
    if (!range.exceeded_by(sum)) continue;
    *job.too_large = 1;
    job.sums[i] = range.clip(sum);
    if (!job.keeper.keeps(job.base + i)) continue;
    job.residual[i] = job.keeper.add_rest(job.residual[i], sum, range);
  }
}

}  // namespace winnow::kernels::reference
