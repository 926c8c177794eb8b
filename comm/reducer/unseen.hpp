// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <winnow/exec.hpp>
#include <winnow/options.hpp>
#include <winnow/transport.hpp>

#include "comm/plan/bucket.hpp"
#include "comm/reducer/widened.hpp"
#include "comm/schedule/exchange.hpp"
#include "compress/compressor.hpp"
#include "kernels/call_status.hpp"

namespace winnow::comm {

// Calls in device memory whose host enqueues all there is to do, whatever the device will find: a
// verdict in device memory decides what of it is done.

/// Whether a bucket there may be reduced so: Schedule::unseen of all its parts, of none of them
/// Part::any_k, and of a dense one no residual whose end would be up to the sum.
bool may_go_unseen(const Bucket& bucket);

/// A call and its parts, in their order.
struct UnseenCall {
  const Exec& exec;
  const Bucket& bucket;
  std::span<const Schedule* const> schedules;
  std::span<Exchange> exchanges;
  const Widened& widened;
};

/// The parts through their schedules, and their sums to the elements. Where the verdict on a bucket
/// with compressed parts says so in the end, what was taken is put back, and elements become NaN.
/// Exempt parameters that travel beside these get residuals, for what may be put back.
void reduce_unseen(const UnseenCall& call, kernels::CallStatus& verdict);

/// Why a call of a bucket, null where it has no settled plan yet, cannot be captured into a CUDA
/// graph; or empty.
std::string refuse_capture(const Bucket* bucket, const Options& options,
                           const compress::Compressor& compressor, const Transport& transport);

}  // namespace winnow::comm
