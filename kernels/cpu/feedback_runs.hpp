// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kernels/cpu/values/message_writer.hpp"
#include "kernels/value_coding.hpp"

namespace winnow::kernels::cpu {

/// The pass of feedback_quantize: gathers acc, chunk by chunk, for the writers of the owners other
/// than self, and leaves what their codes miss in the residuals. False where an acc is not finite.
bool walk_feedback(const Exec& exec, const FeedbackQuantizeJob& job,
                   std::span<const MessageWriter> writers);

}  // namespace winnow::kernels::cpu
