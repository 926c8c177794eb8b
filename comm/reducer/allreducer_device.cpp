// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// The outcome of calls on a device, which return before they are done.
#include <exception>
#include <mutex>
#include <winnow/error.hpp>

#include "comm/reducer/allreducer_impl.hpp"
#include "comm/reducer/stream_ordered.hpp"
#include "comm/transport/abort_on_error.hpp"
#include "comm/transport/failure.hpp"

namespace winnow {

using comm::Bucket;

/// Learns the outcome of earlier calls on a device.
void AllReducer::Impl::poll() {
  if (completions == nullptr) return;
  if (const auto why = completions->failure()) fail(*why);
  for (std::size_t bucket = 0; bucket < completions->buckets(); ++bucket) {
    const kernels::CallCounts calls_since = completions->counts(bucket);
    book.count(bucket, calls_since);
    if (calls_since.refused > 0) expect_strays();
  }
  if (call_clock() == nullptr) return;
  clock->read([this](const kernels::StreamClock::Name& call, const double* stage, double seconds) {
    book.add_time(call, stage, seconds);
  });
}

/// Likewise, of calls that have ended. What replays left, the host does not see.
void AllReducer::Impl::hear() {
  poll();
  if (completions->has_captured()) expect_strays();
}

/// After a call that put its gradients back, wherever they belong.
void AllReducer::Impl::expect_strays() {
  for (auto& [id, parameter] : parameters) {
    for (compress::PieceState& piece : parameter.pieces) {
      if (piece.dirty) piece.mark_dirty();
    }
  }
}

/// Before a call in two levels: its first round depends on whether residuals hold anything outside
/// of this rank's shards, as they do behind a call that put its gradients back. Those of other
/// buckets need no wait: what they leave is confined to their own shards, or not at all. The
/// bucket's last call ended long ago where others came between.
void AllReducer::Impl::await_last_call(const Bucket& bucket) {
  try {
    completions->wait(completions->ended(bucket.number));
  } catch (const Error& error) {
    fail(comm::failure_of(error));
  }
  hear();
}

/// Call this before the host waits for the device: the device may still wait for messages of
/// earlier calls, and it knows no deadline. From replays the host learns the number of the call
/// that comes.
void AllReducer::Impl::await_calls() {
  if (completions == nullptr) return;
  try {
    completions->wait(completions->ended());
    calls = completions->next();
  } catch (const Error& error) {
    fail(comm::failure_of(error));
  }
}

/// Waits for the messages of the current call.
void AllReducer::Impl::await_messages() {
  try {
    transport->wait(transport->start(exec), deadline());
  } catch (const Error& error) {
    fail(comm::failure_of(error));
  }
}

/// Waits for the device with a deadline, and learns the outcome of the last calls.
void AllReducer::Impl::end_calls() noexcept {
  if (completions == nullptr) return;
  try {
    if (!broken) {
      completions->wait(completions->ended());
      poll();
    }
  } catch (const std::exception& error) {
    comm::abort_by(*transport, error);
  }
  completions->close();
}

/// If messages are work on a stream, ends the wait for a dead peer. The host itself may be waiting
/// for space in the stream in the middle of a call. So this touches nothing that a call uses; the
/// next look at the transport or at `completions` does the rest.
void AllReducer::Impl::start_watchdog() {
  if (watchdog.joinable() || !transport->captures() || transport->size() == 1) return;
  watchdog = comm::stall_watchdog(
      completions, context.device(), std::chrono::duration<double>(patience()), [this] {
        const auto why = comm::missed_deadline("while the device waited for messages");
        completions->fail(why);  // before the work continues and seems done
        transport->abort(why.text, why.kind);
      });
}

void AllReducer::Impl::synchronize() {
  queue->drain();
  const std::lock_guard lock(context.moving());
  if (broken) errors.comm_error(*broken);
  if (completions == nullptr) return;
  await_calls();
  hear();
}

/// Null during capture: marks in a graph cannot be read, and marks of another stream must not be
/// read while a graph is captured.
kernels::StreamClock* AllReducer::Impl::call_clock() const noexcept {
  try {
    return clock != nullptr && !kernels::is_captured(exec) ? clock.get() : nullptr;
  } catch (const CudaError&) {
    return nullptr;
  }
}

void AllReducer::Impl::expect_capturable(std::span<const Segment> segments) const {
  WINNOW_EXPECTS(output == nullptr,
                 "a reduce_scatter cannot be captured into a CUDA graph: the host waits within it");
  WINNOW_EXPECTS(!undo.begun(),
                 "a call of a step that may be discarded cannot be captured into a CUDA graph");
  WINNOW_EXPECTS(
      stage_of(segments) + 1 == stages.size(),
      "this call cannot be captured into a CUDA graph: each replay would keep as much as "
      "the warm-up does now");
  const auto known = buckets.find(id_of(segments, op));
  const Bucket* const bucket = known == buckets.end() ? nullptr : &known->second;
  const std::string refusal = comm::refuse_capture(bucket, options, *compressor, *transport);
  WINNOW_EXPECTS(refusal.empty(), refusal);
}

}  // namespace winnow
