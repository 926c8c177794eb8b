// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/call/stream_ordered.hpp"

#include <algorithm>
#include <limits>

#include "comm/call/restore.hpp"
#include "comm/schedule/pipeline.hpp"
#include "comm/schedule/schedule.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/exec/stopwatch.hpp"
#include "kernels/memory_ops.hpp"

namespace winnow::comm {

namespace {

/// Adds to the status whether dense sums are finite; they are not if a gradient is not.
void check_finite(const Exec& exec, std::span<const Exchange> dense, kernels::CallStatus& status) {
  for (const Exchange& exchange : dense) {
    kernels::all_finite(exec, sum_of(exchange), &status.not_finite);
  }
}

}  // namespace

bool is_stream_ordered(const Bucket& bucket) {
  const auto decides_nothing = [&](const BucketPart& part) {
    return std::ranges::none_of(part.part.pieces, [&](const compress::Piece& piece) {
      return bucket.compressed == 0 && piece.has_residual();
    });
  };
  if (bucket.compressed > 0 && bucket.compressor->variable_k()) return false;
  return !bucket.parts.empty() && std::ranges::all_of(bucket.parts, decides_nothing);
}

bool waits_for_sizes(const Bucket& bucket, int ranks) {
  return std::ranges::any_of(bucket.parts, [&](const BucketPart& part) {
    return part.schedule->waits(*bucket.compressor, ranks);
  });
}

void reduce_stream_ordered(const CallParts& call, kernels::CallStatus& status) {
  const Exec& exec = call.exec();
  for (Exchange& exchange : call.exchanges) {
    exchange.course.status = &status;
    exchange.random.device_call = &status.call;
  }
  if (call.bucket.compressed == 0) {  // nothing to restore
    (void)run_parts(call.schedules, call.exchanges);
    const kernels::Stopwatch watch(call.exchanges.front().wire.stats.add_seconds);
    write_sums(call, exec);
    return;
  }
  const auto dense = call.exchanges.subspan(call.bucket.compressed);
  for (Exchange& exchange : dense) {
    for (const compress::Piece& piece : exchange.part.pieces) {
      if (!piece.residual().empty()) continue;
      make_residual(exec, *piece.parameter);
      kernels::fill(exec, piece.residual(), -0.0F);  // it will be added from now on and must change
                                                     // nothing
    }
  }
  (void)run_parts(call.schedules.first(call.bucket.compressed),
                  call.exchanges.first(call.bucket.compressed));
  (void)run_parts(call.schedules.subspan(call.bucket.compressed), dense);
  const kernels::Stopwatch watch(call.exchanges.front().wire.stats.add_seconds);
  check_finite(exec, dense, status);
  Exec undo = exec, keep = exec;
  undo.condition = kernels::refused(status);
  keep.condition = kernels::accepted(status);
  for (const Exchange& exchange : call.exchanges) {
    restore(exchange, undo, std::numeric_limits<float>::quiet_NaN());
  }
  write_sums(call, keep);
}

std::string refuse_capture(const Bucket* bucket, const Options& options,
                           const compress::Compressor& compressor, const Transport& transport) {
  const std::string cannot = "this call cannot be captured into a CUDA graph: ";
  if (bucket == nullptr) {
    return cannot + "the first calls of a bucket plan and allocate; make some before the capture";
  }
  if (bucket->compressed > 0 && compressor.variable_k()) {
    return cannot + "the host waits for the device to read how many elements " + compressor.name() +
           " keeps; topk keeps as many in each call";
  }
  if (bucket->parts.empty()) return cannot + "only sums and averages of gradients can be";
  if (!is_stream_ordered(*bucket)) {
    return cannot +
           "what an earlier call left in a residual travels in it; make a call before the capture";
  }
  if (waits_for_sizes(*bucket, transport.size())) {
    return cannot + "within the schedule " + bucket->words.schedule +
           " the host waits to learn how many elements of " + compressor.name() +
           " messages carry; it does not if all ranks know which travel, as with randomk or int8, "
           "nor in gather";
  }
  if (std::ranges::any_of(bucket->parts,
                          [](const BucketPart& part) { return part.schedule->takes_turns; })) {
    return cannot +
           "in each replay the same rank would pick the support, since the host counts turns";
  }
  if (bucket->has_two_levels()) {
    return cannot +
           "in two levels the host must read whether a replay became NaN before the next one";
  }
  if (transport.size() > 1 && !transport.captures()) {
    return cannot + "its transport is not NCCL's";
  }
  if (options.precondition.starts_with("second_moment")) {
    return cannot + "each replay would correct the bias of second moments by the same factor";
  }
  if (options.stats >= 2) return cannot + "stats=2 looks at the elements";
  if (bucket->compressed > 0 && compressor.one_sign()) {
    return cannot + "each replay would select elements of the same sign";
  }
  return {};
}

}  // namespace winnow::comm
