// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/call/call.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <span>
#include <utility>
#include <winnow/error.hpp>

#include "comm/call/restore.hpp"
#include "comm/call/stream_ordered.hpp"
#include "comm/stats/measure.hpp"
#include "comm/transport/failure.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/stopwatch.hpp"
#include "kernels/exec/stream_clock.hpp"
#include "kernels/exec/together.hpp"

namespace winnow::comm {

using compress::Header;
using kernels::Stopwatch;
using kernels::StreamClock;

namespace {

const Exec& exec_of(const CallContext& context) {
  return context.setup.exec();
}

Workspace& pinned_of(const Exec& exec) {
  return exec.pinned_workspace != nullptr ? *exec.pinned_workspace : *exec.workspace;
}

}  // namespace

Call::Call(const CallContext& context, const Request& request)
    : context_(context),
      request_(request),
      scratch_(*exec_of(context).workspace),
      device_scratch_(kernels::scratch_of(exec_of(context))),
      pinned_scratch_(pinned_of(exec_of(context))),
      planned_(context.plans.find(request)),
      stream_ordered_(context.device_calls.any() && !request.waits() &&
                      comm::is_stream_ordered(planned_.bucket)) {}

const Bucket& Call::run() {
  await_earlier();
  const auto start = Deadline::Clock::now();
  begin();
  StreamClock::Call timed(context_.device_calls.clock(), context_.book.call().wait_seconds);
  read();
  try {
    if (planned_.unmet) fail_by(*planned_.unmet);
    reduce();
  } catch (const Refused& refused) {
    context_.health.refuse(refused.why);
  } catch (const std::exception& error) {
    fail(error);
  }
  write();
  measure();
  timed.end({.number = context_.book.number(), .bucket = planned_.bucket.number});
  if (planned_.trial != nullptr) {
    kernels::wait(context_.setup.exec());
    const std::chrono::duration<double> taken = Deadline::Clock::now() - start;
    planned_.trial->record(taken.count());
  }
  return planned_.bucket;
}

/// Waits for what must end before this call begins.
void Call::await_earlier() {
  const Setup& setup = context_.setup;
  const Bucket& bucket = planned_.bucket;
  const bool is_timed = planned_.trial != nullptr;
  if (is_timed || !stream_ordered_ || waits_for_sizes(bucket, setup.world.ranks)) {
    context_.device_calls.await_all();
  }
  if (bucket.has_two_levels()) context_.device_calls.await_last(bucket);
  if (is_timed) {  // which must time neither earlier work nor the other ranks'
    kernels::wait(setup.exec());
    if (planned_.trial->counts()) begin_together();
  }
}

/// Returns when all ranks are here. If they cannot meet, the call goes on, to fail and lose
/// nothing.
void Call::begin_together() noexcept {
  const Setup& setup = context_.setup;
  try {
    const std::byte here{};
    const auto ranks = static_cast<std::size_t>(setup.world.ranks);
    const auto all = setup.exec().workspace->take<std::byte>(ranks);
    setup.context.control().all_gather(setup.context.host(), {&here, 1}, all, setup.deadline());
  } catch (const std::exception& error) {
    planned_.unmet = failure_of(error);
  }
}

/// Starts the call's account, and an Exchange for each part.
void Call::begin() {
  const Setup& setup = context_.setup;
  Bucket& bucket = planned_.bucket;
  CallMemory& memory = context_.memory;
  view(bucket, memory.segments.segments());
  Stats& stats = context_.book.begin(bucket);
  kernels::CallStatus* const status = context_.device_calls.status();
  const float averaged = request_.averaged(setup.world.ranks);
  number_ = context_.device_calls.number();
  memory.exchanges.clear();
  memory.schedules.clear();
  for (BucketPart& part : bucket.parts) {
    const auto number = static_cast<std::uint16_t>(memory.exchanges.size());
    memory.schedules.push_back(part.schedule);
    memory.exchanges.push_back(Exchange{
        .wire = {.world = setup.transport(),
                 .rank = setup.world.rank,
                 .ranks = setup.world.ranks,
                 .deadline = setup.deadline(),
                 .stats = stats},
        .levels = {.rails = setup.rails.get(), .shards = &part.shards},
        .compressor = *bucket.compressor,
        .exec = setup.exec(),
        .scaling = {.decay = setup.options.decay, .factor = 1 / averaged, .averaged = averaged},
        .course = {.ring = bucket.ring,
                   .too_large = status != nullptr ? &status->too_large : nullptr,
                   .one_by_one = setup.places_differ,
                   .undoable = bucket.mixed()},
        .part = part.part,
        .header = header_of(part.part, number),
        .random = random_of(part.part, number)});
  }
  context_.device_calls.advance();
}

Header Call::header_of() const {
  return {.digest = context_.setup.digest, .bucket = planned_.bucket.plan, .call = number_};
}

Header Call::header_of(const compress::Part& part, std::uint16_t number) const {
  Header header = header_of();
  header.count = part.count;
  header.k = part.k;
  header.part = number;
  return header;
}

/// Numbers the stages so that no two messages of a call share random numbers.
kernels::RandomKey Call::random_of(const compress::Part& part, std::uint16_t number) const {
  return {.seed = context_.setup.options.seed,
          .call = number_,
          .rank = static_cast<std::uint32_t>(context_.setup.world.rank),
          .stage = number * (part.partition.owners() + 1)};
}

/// Brings the gradients to the segments as the parts take them.
void Call::read() {
  const Stopwatch watch(context_.book.call().select_seconds);
  context_.memory.segments.read(context_.setup.exec());
  if (context_.parameters.step_begun()) context_.parameters.keep(planned_.bucket);
  precondition();
}

/// Prepares what error feedback is to see of the gradients: for the pass that selects from them, if
/// there is one, else at once.
void Call::precondition() {
  const Setup& setup = context_.setup;
  const Exec& exec = setup.exec();
  const std::span<const Segment> segments = context_.memory.segments.segments();
  Bucket& bucket = planned_.bucket;
  for (std::size_t p = 0; p < bucket.parts.size(); ++p) {
    BucketPart& part = bucket.parts[p];
    // In two levels gradients are added within the node first, and a residual is of a node's sums.
    const bool has_residual = p < bucket.compressed && part.schedule->inner == nullptr;
    const bool has_pass = has_residual && !bucket.compressor->keeps_all();
    for (std::size_t i = 0; i < part.segments.size(); ++i) {
      compress::Piece& piece = part.part.pieces[i];
      if (piece.offset == 0) {
        ++piece.parameter->calls;
        setup.preconditioner.begin(*piece.parameter);
      }
      const float rate = segments[part.segments[i]].rate;
      piece.precondition = setup.preconditioner.of(piece, rate, has_residual);
    }
    if (has_pass || planned_.unmet) continue;  // or it is kept, in a pass of its own
    kernels::together(exec, [&] {
      for (compress::Piece& piece : part.part.pieces) {
        if (piece.precondition.kind == kernels::Precondition::Kind::none) continue;
        kernels::precondition(exec, piece.elements.floats(), piece.residual(), piece.precondition);
        piece.precondition = {};
      }
    });
  }
}

/// Selects, encodes, exchanges and adds: the sums are in the segments as the parts take them.
void Call::reduce() {
  const CallParts parts{.setup = context_.setup,
                        .bucket = planned_.bucket,
                        .segments = context_.memory.segments.segments(),
                        .schedules = context_.memory.schedules,
                        .exchanges = context_.memory.exchanges,
                        .stats = context_.book.call(),
                        .header = header_of(),
                        .is_first = context_.book.of(planned_.bucket).totals.calls == 0};
  if (stream_ordered_) {
    reduce_stream_ordered(parts, *context_.device_calls.status());
    context_.device_calls.start_watchdog();
    context_.parameters.count_residuals();
  } else if (!request_.reduce(parts)) {
    restore(std::numeric_limits<float>::quiet_NaN());
    parts.stats.poisoned = 1;
    parts.stats.clipped = 0;
  } else if (parts.is_first) {
    for (const Exchange& exchange : parts.exchanges) reserve_for_restore(exchange, parts.exec());
  }
}

/// Brings the segments back into the caller's elements.
void Call::write() {
  const Stopwatch watch(context_.book.call().add_seconds);
  context_.memory.segments.narrow(context_.setup.exec());
  request_.deliver(context_.setup.exec());
}

void Call::measure() {
  const StreamClock::Stage stage(&StreamClock::kUncounted);
  const bool looks = context_.setup.options.stats >= 2;
  if (stream_ordered_ && (planned_.trial != nullptr || looks)) {
    context_.device_calls.await_messages();
  }
  if (!looks) return;
  comm::measure(context_.setup.exec(), request_.result(), planned_.bucket, context_.book.call());
}

/// Puts the gradients back into the residuals. The caller's elements read zero then.
void Call::fail(const std::exception& error) {
  Failure why = failure_of(error);
  context_.setup.transport().abort(why.text, why.kind);
  restore(0);
  context_.memory.segments.narrow(context_.setup.exec());
  request_.deliver(context_.setup.exec());
  add_hint(why);
  context_.health.fail(std::move(why));
}

/// If a call failed at a deadline while calls of another AllReducer wait for it to end, ranks may
/// have waited for the two in different order. If ranks make different calls, one says what its is.
void Call::add_hint(Failure& why) const noexcept {
  try {
    if (why.kind == FailureKind::usage && !planned_.unmet) {
      why.text += "; known here: a bucket of " + text_of(request_.segments());
    }
    if (why.kind == FailureKind::deadline && context_.queue.blocks_others()) {
      why.text +=
          "; this rank has calls of another AllReducer in flight, which cannot run before this one "
          "ends: ranks must wait for calls of several AllReducers in one order, or initialise MPI "
          "with MPI_THREAD_MULTIPLE";
    }
  } catch (const std::exception&) {
    // There is no memory for the hint.
  }
}

/// Ends a call that failed or whose result is not finite.
void Call::restore(float fill) {
  read_again();
  for (const Exchange& exchange : context_.memory.exchanges) {
    comm::restore(exchange, context_.setup.exec(), fill);
  }
  context_.parameters.count_residuals();
}

/// If a collective worked on elements in place but all their gradients still have an original (an
/// input or 16-bit elements), reads them again, to be restored.
void Call::read_again() {
  const Setup& setup = context_.setup;
  const StagedSegments& segments = context_.memory.segments;
  bool found = false;
  for (Exchange& exchange : context_.memory.exchanges) {
    const bool all =
        std::ranges::all_of(planned_.bucket.parts[exchange.header.part].segments,
                            [&](std::size_t segment) { return segments.has_original(segment); });
    if (!std::holds_alternative<Overwritten>(exchange.undo) || !all) continue;
    exchange.undo = Untouched{};
    found = true;
  }
  if (!found) return;
  segments.read(setup.exec());
  for (const BucketPart& part : planned_.bucket.parts) {
    for (std::size_t i = 0; i < part.segments.size(); ++i) {
      const compress::Piece& piece = part.part.pieces[i];
      const std::size_t segment = part.segments[i];
      const bool is_left_to_a_pass = piece.precondition.kind != kernels::Precondition::Kind::none;
      if (is_left_to_a_pass || !segments.has_original(segment)) continue;
      setup.preconditioner.repeat(setup.exec(), piece, segments.segments()[segment].rate);
    }
  }
}

}  // namespace winnow::comm
