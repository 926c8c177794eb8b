// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// A call, from gradients to sums.
#include <algorithm>
#include <exception>
#include <limits>
#include <mutex>
#include <utility>
#include <winnow/error.hpp>

#include "comm/reducer/allreducer_impl.hpp"
#include "comm/reducer/measure.hpp"
#include "comm/reducer/native_only.hpp"
#include "comm/reducer/put_back.hpp"
#include "comm/reducer/stream_ordered.hpp"
#include "comm/schedule/pipeline.hpp"
#include "comm/schedule/rests.hpp"
#include "comm/transport/failure.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/exec/float_mode.hpp"
#include "kernels/exec/stopwatch.hpp"
#include "kernels/exec/together.hpp"
#include "kernels/memory_ops.hpp"

namespace winnow {

using comm::Bucket;
using comm::BucketPart;
using comm::Exchange;
using comm::Failure;
using compress::Header;
using kernels::Stopwatch;
using kernels::StreamClock;

/// Counts the parameters that have a residual.
std::uint64_t AllReducer::Impl::count_residuals() const {
  return static_cast<std::uint64_t>(std::ranges::count_if(
      parameters, [](const auto& entry) { return !entry.second.residual.empty(); }));
}

/// Sets `mark`, if not null, behind the call's work on a device.
void AllReducer::Impl::all_reduce(std::span<const Segment> segments, ReduceOp chosen,
                                  kernels::StreamMark* mark, const Elements* scattered) {
  const std::lock_guard lock(context.moving());
  if (broken) errors.comm_error(*broken);
  const kernels::FloatMode mode;
  op = chosen;
  output = scattered;
  try {
    const kernels::DeviceScope scope(context.device());
    poll();
    if (kernels::is_captured(exec)) {
      WINNOW_EXPECTS(mark == nullptr, "a call in flight cannot be captured into a CUDA graph");
      expect_capturable(segments);
    }
    const Bucket& bucket = call(segments);
    if (completions != nullptr) {
      completions->end(bucket.number, book.call().clipped > 0);
      if (mark != nullptr) mark->set(exec);
    }
    log->call(calls - 1, book.of(bucket), book.call());
    if (clock != nullptr) book.forget_times();
    book.finish(bucket, context.allocations() + residuals + queue->allocations());
  } catch (const CudaError& error) {  // a failed device cannot put anything back
    fail(comm::failure_of(error));
  }
}

/// One call: finds the bucket and its plan, sums over ranks, and writes the sums into the bucket.
const Bucket& AllReducer::Impl::call(std::span<const Segment> segments) {
  const Workspace::Scope scope(*exec.workspace), device_scope(kernels::scratch_of(exec)),
      pinned_scope(exec.pinned_workspace != nullptr ? *exec.pinned_workspace : *exec.workspace);
  Bucket& bucket = find(segments);
  const auto trial = trials.find(bucket.id);
  const bool is_scatter = output != nullptr;  // within which the host waits
  const bool by_status = completions != nullptr && !is_scatter && comm::goes_by_status(bucket);
  const bool waits =
      trial != trials.end() || !by_status || comm::waits_for_sizes(bucket, transport->size());
  if (waits) await_calls();
  if (completions != nullptr && comm::has_two_levels(bucket)) await_last_call(bucket);
  if (trial != trials.end()) {  // which must time neither earlier work nor the other ranks'
    kernels::wait(exec);
    if (trial->second.counts()) meet();
  }
  const auto start = Deadline::Clock::now();
  comm::view(bucket, widened.segments());
  begin(bucket);
  StreamClock::Call timed(call_clock(), book.call().wait_seconds);
  {
    const Stopwatch watch(book.call().select_seconds);
    widened.read(exec);
    keep_for_undo(bucket);
    precondition(bucket);
  }
  try {
    if (unmet) comm::fail_by(*unmet);
    if (bucket.native_only) {
      comm::reduce_natively({*transport, exec, deadline(), bucket.ring}, widened.segments(), op,
                            book.call());
      const int next = (transport->rank() + 1) % transport->size();
      if (!rails->on_node(next)) book.call().network_bytes = book.call().wire_bytes;
    } else if (by_status) {
      comm::reduce_stream_ordered({exec, bucket, schedules, exchanges}, completions->status());
      start_watchdog();
      residuals = count_residuals();
    } else if (!reduce(bucket)) {
      recover(bucket);
      put_back(std::numeric_limits<float>::quiet_NaN());
      book.call().poisoned = 1;
      book.call().clipped = 0;
    } else if (book.of(bucket).totals.calls == 0) {
      for (const Exchange& exchange : exchanges) comm::reserve_for_put_back(exchange, exec);
    }
  } catch (const std::exception& error) {
    Failure why = comm::failure_of(error);
    transport->abort(why.text, why.kind);
    recover(bucket);
    put_back(0);
    widened.narrow(exec);
    deliver(segments);
    advise(why, segments);
    fail(std::move(why));
  }
  {
    const Stopwatch watch(book.call().add_seconds);
    widened.narrow(exec);
    deliver(segments);
  }
  {
    const StreamClock::Stage stage(&StreamClock::kUncounted);
    if (by_status && (trial != trials.end() || options.stats >= 2)) await_messages();
    if (options.stats >= 2 && output == nullptr) {
      comm::measure(exec, segments, bucket, book.call());
    } else if (options.stats >= 2) {
      const Segment own{.elements = own_shard(segments)};
      comm::measure(exec, {&own, 1}, bucket, book.call());
    }
  }
  timed.end({.number = book.number(), .bucket = bucket.number});
  if (trial != trials.end()) {
    kernels::wait(exec);
    trial->second.record(std::chrono::duration<double>(Deadline::Clock::now() - start).count());
  }
  return bucket;
}

/// Returns when all ranks are here. If they cannot meet, the call goes on, to fail and lose
/// nothing.
void AllReducer::Impl::meet() noexcept {
  try {
    const std::byte here{};
    const auto all = exec.workspace->take<std::byte>(static_cast<std::size_t>(transport->size()));
    context.control().all_gather(context.host(), {&here, 1}, all, deadline());
  } catch (const std::exception& error) {
    unmet = comm::failure_of(error);
  }
}

/// If a collective worked on elements in place but all their gradients still have an original (an
/// input or 16-bit elements), reads them again, to be put back.
void AllReducer::Impl::recover(const Bucket& bucket) {
  bool found = false;
  for (Exchange& exchange : exchanges) {
    const auto& segments = bucket.parts[exchange.header.part].segments;
    const bool all = std::ranges::all_of(
        segments, [&](std::size_t segment) { return widened.has_original(segment); });
    if (!std::holds_alternative<comm::Overwritten>(exchange.undo) || !all) continue;
    exchange.undo = comm::Untouched{};
    found = true;
  }
  if (!found) return;
  widened.read(exec);
  for (const BucketPart& part : bucket.parts) {
    for (std::size_t i = 0; i < part.segments.size(); ++i) {
      const compress::Piece& piece = part.part.pieces[i];
      const std::size_t segment = part.segments[i];
      const bool is_left_to_a_pass = piece.precondition.kind != kernels::Precondition::Kind::none;
      if (is_left_to_a_pass || !widened.has_original(segment)) continue;
      preconditioner.repeat(exec, piece, widened.segments()[segment].rate);
    }
  }
}

/// Prepares what error feedback is to see of the gradients: for the pass that selects from them, if
/// there is one, else at once.
void AllReducer::Impl::precondition(Bucket& bucket) const {
  for (std::size_t p = 0; p < bucket.parts.size(); ++p) {
    BucketPart& part = bucket.parts[p];
    // In two levels gradients are added within the node first, and a residual is of a node's sums.
    const bool has_residual = p < bucket.compressed && part.schedule->inner == nullptr;
    const bool has_pass = has_residual && !bucket.compressor->keeps_all();
    for (std::size_t i = 0; i < part.segments.size(); ++i) {
      compress::Piece& piece = part.part.pieces[i];
      if (piece.offset == 0) {
        ++piece.parameter->calls;
        preconditioner.begin(*piece.parameter);
      }
      const float rate = widened.segments()[part.segments[i]].rate;
      piece.precondition = preconditioner.of(piece, rate, has_residual);
    }
    if (has_pass || unmet) continue;  // or it is kept, in a pass of its own
    kernels::together(exec, [&] {
      for (compress::Piece& piece : part.part.pieces) {
        if (piece.precondition.kind == kernels::Precondition::Kind::none) continue;
        kernels::precondition(exec, piece.elements.floats(), piece.residual(), piece.precondition);
        piece.precondition = {};
      }
    });
  }
}

/// If a call failed at a deadline while calls of another AllReducer wait for it to end, ranks may
/// have waited for the two in different order. If ranks make different calls, one says what its is.
void AllReducer::Impl::advise(Failure& why, std::span<const Segment> segments) const noexcept {
  try {
    if (why.kind == FailureKind::usage && !unmet) {
      why.text += "; known here: a bucket of " + comm::text_of(segments);
    }
    if (why.kind == FailureKind::deadline && queue->holds_up_others()) {
      why.text +=
          "; this rank has calls of another AllReducer in flight, which cannot run before this one "
          "ends: ranks must wait for calls of several AllReducers in one order, or initialise MPI "
          "with MPI_THREAD_MULTIPLE";
    }
  } catch (const std::exception&) {
    // There is no memory for the advice.
  }
}

/// From here on ranks may differ, and the transport may still use the buffers it was given.
void AllReducer::Impl::fail(Failure why) {
  transport->abort(why.text, why.kind);
  broken = std::move(why);
  context.abandon();
  log->broken(*broken);
  if (broken->kind == FailureKind::usage) errors.usage_error(broken->text);
  errors.comm_error(*broken);
}

void AllReducer::Impl::begin(Bucket& bucket) {
  Stats& call = book.begin(bucket);
  exchanges.clear();
  schedules.clear();
  for (BucketPart& part : bucket.parts) {
    const Header header{.digest = digest,
                        .bucket = bucket.plan,
                        .call = calls,
                        .count = part.part.count,
                        .k = part.part.k,
                        .part = static_cast<std::uint16_t>(exchanges.size())};
    schedules.push_back(part.schedule);
    exchanges.push_back(Exchange{
        .wire = {.world = *transport, .deadline = deadline(), .stats = call},
        .levels = {.rails = rails.get(), .shards = &part.shards},
        .compressor = *bucket.compressor,
        .exec = exec,
        .scaling = {.decay = options.decay, .factor = factor(), .averaged = averaged()},
        .course = {.ring = bucket.ring,
                   .too_large = completions != nullptr ? &completions->status().too_large : nullptr,
                   .one_by_one = places_differ,
                   .undoable = bucket.mixed()},
        .part = part.part,
        .header = header,
        .random = random_of(part.part, header.part)});
  }
  ++calls;
}

/// Numbers the stages so that no two messages of a call share random numbers.
kernels::RandomKey AllReducer::Impl::random_of(const compress::Part& part,
                                               std::uint16_t number) const {
  return {.seed = options.seed,
          .call = calls,
          .rank = static_cast<std::uint32_t>(transport->rank()),
          .stage = number * (part.partition.owners() + 1)};
}

/// Sums compressed parts before dense ones begin, and writes sums that overwrite a gradient last,
/// so that any failure can be put back. Returns false if the bucket must become NaN; all ranks
/// decide that from the same bits.
bool AllReducer::Impl::reduce(const Bucket& bucket) {
  if (output != nullptr && bucket.compressed > 0) return scatter();
  const auto parts = std::span(exchanges);
  const auto compressed = parts.first(bucket.compressed), dense = parts.subspan(bucket.compressed);
  const auto ways = std::span(schedules);
  const bool finite = comm::run_parts(ways.first(compressed.size()), compressed);
  // Dense sums need no poison bit: they are not finite if a gradient is not. They run in any case,
  // since other ranks may not have looked at the compressed parts yet.
  if (!comm::run_parts(ways.subspan(compressed.size()), dense) || !finite) return false;
  const Stopwatch watch(book.call().add_seconds);
  if (bucket.mixed() && !sums_are_finite(dense)) return false;
  for (std::size_t i = 0; i < exchanges.size(); ++i) {
    if (schedules[i]->write != nullptr) schedules[i]->write(exchanges[i], exec);
  }
  const bool is_first = book.of(bucket).totals.calls == 0;
  for (std::size_t i = 0; i < compressed.size(); ++i) {
    compress::keep_left(exec, compressed[i].part, compressed[i].owned);
    if (schedules[i]->write != nullptr) continue;
    comm::keep_rests(*schedules[i], compressed[i], exec, is_first);
  }
  return true;
}

/// Whether the sums of these parts are finite.
bool AllReducer::Impl::sums_are_finite(std::span<const Exchange> parts) const {
  if (parts.empty()) return true;  // no answer to wait for
  const auto look = [&](std::uint32_t* not_finite) {
    for (const Exchange& exchange : parts) {
      kernels::all_finite(exec, comm::sum_of(exchange), not_finite);
    }
  };
  return kernels::answer(exec, look) == 0;
}

/// Ends a call that failed or whose result is not finite.
void AllReducer::Impl::put_back(float fill) {
  for (const Exchange& exchange : exchanges) comm::put_back(exchange, exec, fill);
  residuals = count_residuals();
}

}  // namespace winnow
