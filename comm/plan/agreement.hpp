// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <winnow/exec.hpp>
#include <winnow/transport.hpp>

#include "compress/message.hpp"

namespace winnow::comm {

/// One small all-gather of headers. Returns nothing if every rank has sent the same digest, bucket,
/// call, count and k as `mine` and none has sent Header::kRefused. Otherwise returns, on every
/// rank, why they cannot go on: a rank that differs and how, or `refusal`, this rank's own reason
/// if it set kRefused. Throws CommError if a rank sends something else altogether; see
/// is_usage_reason.
std::string agree(Transport& world, const Exec& exec, compress::Header mine,
                  std::string_view refusal, Deadline deadline);

}  // namespace winnow::comm
