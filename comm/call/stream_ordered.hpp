// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <winnow/options.hpp>
#include <winnow/transport.hpp>

#include "comm/call/request.hpp"
#include "comm/plan/bucket.hpp"
#include "compress/compressor.hpp"
#include "kernels/call_status.hpp"

namespace winnow::comm {

// Stream-ordered calls: the host enqueues everything, and a status in device memory decides which
// of it takes effect. Within them the host waits for sizes, where these depend on the support, and
// for nothing else.

/// Whether a bucket in device memory may be reduced so: its compressor has no variable_k, and no
/// dense part has a residual to clear that depends on the sum.
bool is_stream_ordered(const Bucket& bucket);
/// Whether the host then waits for sizes.
bool waits_for_sizes(const Bucket& bucket, int ranks);

/// Runs the parts through their schedules and writes their sums to the elements. If the status on
/// a bucket with compressed parts is bad in the end, everything is restored and the elements become
/// NaN. Exempt parameters in such a bucket get residuals, to restore into.
void reduce_stream_ordered(const CallParts& call, kernels::CallStatus& status);

/// Why a call of a bucket (null if its plan is not settled yet) cannot be captured into a CUDA
/// graph; or empty.
std::string refuse_capture(const Bucket* bucket, const Options& options,
                           const compress::Compressor& compressor, const Transport& transport);

}  // namespace winnow::comm
