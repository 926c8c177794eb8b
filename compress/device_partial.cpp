// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/device_partial.hpp"

#include <algorithm>

#include "compress/device_owned.hpp"
#include "kernels/cuda/add_to.hpp"

namespace winnow::compress {

using kernels::cuda::DeviceTerm;

std::span<const std::uint32_t> sum_terms(const Exec& exec, std::span<const kernels::Term> terms,
                                         std::span<float> sum) {
  const auto there = exec.workspace->take<DeviceTerm>(terms.size());
  std::ranges::transform(terms, there.begin(), kernels::cuda::device_term);
  const auto not_finite = exec.device_workspace->take<std::uint32_t>(1);
  kernels::cuda::ordered_sum(exec, {.terms = upload(exec, there).data(),
                                    .term_count = static_cast<std::uint32_t>(there.size()),
                                    .sum = sum,
                                    .not_finite = not_finite.data()});
  return not_finite;
}

}  // namespace winnow::compress
