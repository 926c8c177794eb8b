// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <winnow/error.hpp>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/verdict.cuh"
#include "kernels/cuda/verdict.hpp"

namespace winnow::kernels::cuda {

void judge_messages(const Exec& exec, std::span<const std::uint32_t> status, Verdict* verdict) {
  WINNOW_EXPECTS(verdict != nullptr, "what is said of messages goes into a verdict");
  launch<JudgeMessages>(exec, 1,
                        {status.data(), static_cast<std::uint32_t>(status.size()), verdict});
}

void judge_sums(const Exec& exec, std::span<const std::uint32_t> not_finite, Verdict* verdict) {
  WINNOW_EXPECTS(verdict != nullptr, "what is said of sums goes into a verdict");
  launch<JudgeSums>(exec, 1,
                    {not_finite.data(), static_cast<std::uint32_t>(not_finite.size()), verdict});
}

void end_call(const Exec& exec, const CallEnd& end) {
  launch<EndCall>(exec, 1, end);
}

}  // namespace winnow::kernels::cuda
