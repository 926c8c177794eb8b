// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <winnow/exec.hpp>
#include <winnow/transport.hpp>

#include "compress/message.hpp"

namespace winnow::comm {

/// One small all-gather of headers. Returns when every rank has sent the same digest, bucket, call,
/// count and k as `mine`, and none has sent Header::kRefused. Otherwise throws UsageError on every
/// rank, naming a rank that differs and how; `refusal` is this rank's own reason if it set
/// kRefused. Throws CommError if a rank sends something else altogether.
void agree(Transport& world, const Exec& exec, compress::Header mine, std::string_view refusal,
           Deadline deadline);

}  // namespace winnow::comm
