// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/call/plans.hpp"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>
#include <vector>
#include <winnow/error.hpp>

#include "comm/call/stream_ordered.hpp"
#include "comm/plan/agreement.hpp"
#include "comm/plan/hash.hpp"
#include "comm/plan/planner.hpp"
#include "comm/schedule/schedule.hpp"
#include "comm/transport/abort_on_error.hpp"
#include "kernels/arithmetic/element.hpp"
#include "kernels/exec/place_memory.hpp"

namespace winnow::comm {

using compress::Header;

Plans::Plans(const Setup& setup, Health& health, Parameters& parameters, DeviceCalls& device_calls,
             StatsBook& book, DebugLog& log, CallMemory& memory, CallQueue& queue)
    : setup_(setup),
      health_(health),
      parameters_(parameters),
      device_calls_(device_calls),
      book_(book),
      log_(log),
      memory_(memory),
      queue_(queue) {}

/// The stage of the compressor's warm-up, which the first parameter that has elements decides.
unsigned Plans::stage_of(std::span<const Segment> segments) const {
  if (setup_.stages.size() == 1) return 0;
  const ParameterStates& states = parameters_.states();
  const auto first = std::ranges::find_if(
      segments, [](const Segment& segment) { return segment.elements.size() > 0; });
  const auto known = first == segments.end() ? states.end() : states.find(first->id);
  return setup_.compressor->stage_of(known == states.end() ? 0 : known->second.calls);
}

/// Identifies a bucket and the stage that it is in: with another density it counts as new.
std::uint64_t Plans::id_of(const Request& request) const {
  const std::uint64_t id = bucket_id(request.segments(), request.op());
  const unsigned stage = stage_of(request.segments());
  const bool is_last = stage + 1 == setup_.stages.size();
  return request.id(is_last ? id : Hash().add(id).add(stage).value());
}

/// Where there is no memory for the segments the call goes on, to fail with the bucket in its
/// residuals.
Planned Plans::find(const Request& request) {
  const std::uint64_t id = id_of(request);
  if (const auto last = seen_.find(id); last != seen_.end()) {
    last->second.call = device_calls_.number();
    last->second.captured |= kernels::is_captured(setup_.exec());
  }
  const auto known = buckets_.find(id);
  const auto trial = trials_.find(id);
  if (known == buckets_.end() && trial == trials_.end()) return add(id, request);
  std::optional<Failure> unmet =
      compare(trial == trials_.end() ? known->second : trial->second.first(), request);
  Bucket& bucket = trial == trials_.end() ? known->second : next_plan(trial->second);
  try {
    memory_.segments.view(setup_.exec(), request.segments(), bucket, setup_.preconditioner);
  } catch (const std::exception& error) {
    unmet = failure_of(error);
    memory_.segments.view_given(request.segments());
  }
  const auto goes_on = trials_.find(id);
  return {bucket, goes_on == trials_.end() ? nullptr : &goes_on->second, std::move(unmet)};
}

/// The header by which ranks compare a call.
Header Plans::agreement_of(const Bucket& bucket) const {
  Header mine{.bucket = bucket.plan, .call = device_calls_.number(), .count = bucket.count};
  for (const BucketPart& part : bucket.parts) mine.k += part.part.most_k;
  return mine;
}

/// With checksum=all, before anything of a known bucket travels: dense sums, sums within a node and
/// values at a support go without a header that would name their bucket. Ranks to which it is new
/// compare it likewise in add. Returns why the ranks could not meet, if they could not.
std::optional<Failure> Plans::compare(const Bucket& bucket, const Request& request) const {
  if (setup_.options.checksum != Checksum::all || setup_.transport().size() == 1) return {};
  std::string refused;
  try {
    refused = setup_.agree(agreement_of(bucket),
                           {.bucket = [&] { return request.lines(setup_.options); }});
  } catch (const std::exception& error) {
    Failure why = failure_of(error);
    setup_.transport().abort(why.text, why.kind);
    return why;
  }
  if (refused.empty()) return {};
  health_.refuse(with_call_here(std::move(refused), request.segments()));
}

/// The plan of a bucket in a trial; at the trial's end, the settled one.
Bucket& Plans::next_plan(Trial& trial) {
  if (!trial.due()) return trial.plan();
  const std::uint64_t id = trial.first().id;
  Bucket* best = &trial.first();
  try {
    best = trial.compare(setup_.context.control(), setup_.context.host(), setup_.deadline());
    if (best == nullptr) return trial.plan();
  } catch (const std::exception& error) {
    abort_by(setup_.transport(), error);  // so that the call which follows fails, and loses nothing
  }
  Bucket& settled = buckets_.emplace(id, std::move(*best)).first->second;
  trials_.erase(id);
  book_.replan(settled);
  log_.plan(settled, book_.of(settled));
  return settled;
}

/// The first call of a bucket: plans it and compares the plan with all ranks. Whatever takes memory
/// comes before the ranks meet, so that all of them learn if there is none. Leaves no trace if they
/// disagree or others make another call. If the ranks cannot meet, the call goes on, to fail with
/// the bucket in its residuals.
Planned Plans::add(std::uint64_t id, const Request& request) {
  device_calls_.await_replays();
  const std::span<const Segment> segments = request.segments();
  std::vector<std::uint64_t> fresh;
  Header mine{.bucket = id, .call = device_calls_.number()};
  Bucket* bucket = nullptr;
  std::string refusal;
  try {
    for (const Segment& segment : segments) {
      if (!parameters_.states().contains(segment.id)) fresh.push_back(segment.id);
    }
    refusal = request.refusal(setup_, parameters_.states());
    if (refusal.empty()) {
      bucket = &plan(id, request);
      memory_.segments.view(setup_.exec(), segments, *bucket, setup_.preconditioner);
      mine = agreement_of(*bucket);
    }
  } catch (const std::exception& error) {
    refusal = text_of(error);
  }
  if (!refusal.empty()) mine.flags = Header::kRefused;
  std::string refused;
  std::optional<Failure> unmet;
  try {
    refused = setup_.agree(
        mine, {.refusal = refusal, .bucket = [&] { return request.lines(setup_.options); }});
  } catch (const std::exception& error) {
    unmet = failure_of(error);
  }
  const bool others_differ = unmet && unmet->kind == FailureKind::usage;
  if (!refused.empty() || others_differ || !refusal.empty()) {
    forget(id);
    for (const std::uint64_t parameter : fresh) parameters_.states().erase(parameter);
    if (!refused.empty()) {
      const bool own = !refusal.empty();
      health_.refuse(own ? refused : with_call_here(std::move(refused), segments));
    }
    Failure why = std::move(unmet).value_or(Failure());
    try {
      why.text += "; ";
      why.text += refusal.empty() ? "new here: a bucket of " + text_of(segments) : refusal;
    } catch (const std::bad_alloc&) {
      // The rest of the text is not worth the call's own error.
    }
    health_.fail(std::move(why));
  }
  parameters_.count_residuals();
  forget_old();
  log_.plan(*bucket, book_.of(*bucket));
  const auto trial = trials_.find(id);
  return {*bucket, trial == trials_.end() ? nullptr : &trial->second, std::move(unmet)};
}

Bucket Plans::plan_by(std::uint64_t id, const Options& options, const World& world,
                      const Request& request) {
  Bucket bucket = request.plan(id, options, world, setup_.stages[stage_of(request.segments())],
                               parameters_.states());
  bucket.costs.dense_seconds = dense_seconds(bucket, request);
  return bucket;
}

/// Plans a bucket, and takes the memory that its calls need beside scratch.
Bucket& Plans::plan(std::uint64_t id, const Request& request) {
  const std::span<const Segment> segments = request.segments();
  Bucket bucket = plan_by(id, setup_.options, setup_.world, request);
  make_states(setup_.exec(), bucket, setup_.preconditioner);
  parameters_.make_room(bucket);
  queue_.reserve(segments.size());
  memory_.reserve(bucket.parts.size());
  book_.register_schedule(bucket.words.schedule);
  book_.register_bucket(bucket, segments);
  device_calls_.make_room(bucket);
  try {
    seen_.emplace(
        id, Seen{.call = device_calls_.number(), .segments = segments.size(), .captured = false});
    const bool by_ring = races_ring(bucket, request);
    if (bucket.costs.enough || by_ring) return plan_trial(std::move(bucket), by_ring, request);
    return buckets_.emplace(id, std::move(bucket)).first->second;
  } catch (...) {
    book_.forget(bucket.number);
    throw;
  }
}

/// Starts a trial of the bucket's plan against dense ones.
Bucket& Plans::plan_trial(Bucket bucket, bool by_ring, const Request& request) {
  const std::uint64_t id = bucket.id;
  const std::size_t number = bucket.number;
  const std::optional<double> enough = bucket.costs.enough;
  const std::string why =
      bucket.words.reason.substr(0, bucket.words.reason.size() - bucket.words.note.size());
  Options dense = setup_.options;
  dense.schedule = "dense";
  std::vector<Bucket> plans;
  plans.push_back(std::move(bucket));
  const auto add = [&](const World& world) {
    Bucket& plan = plans.emplace_back(plan_by(id, dense, world, request));
    plan.words.reason = why + std::string(plan.words.note);
    plan.number = number;
    book_.register_schedule(plan.words.schedule);
  };
  if (enough) add(setup_.world);
  if (by_ring) {
    World by_own_ring = setup_.world;
    by_own_ring.links.ring = 0;
    add(by_own_ring);
  }
  book_.begin_trial(number);
  return trials_.try_emplace(id, std::move(plans), setup_.options.trial_calls, enough.value_or(0))
      .first->second.plan();
}

/// Seconds of a dense call of the bucket, as predicted; 0 if links are not known.
double Plans::dense_seconds(const Bucket& bucket, const Request& request) const {
  if (setup_.options.links.empty() || bucket.count == 0 || setup_.world.ranks == 1) return 0;
  const CostShape shape{.ranks = setup_.world.ranks,
                        .count = (bucket.count * bucket.unit + sizeof(float) - 1) / sizeof(float),
                        .topology = &setup_.topology};
  return estimate_seconds(request.dense(), shape, setup_.world.links);
}

/// Whether dense by Winnow's ring is tried, too: where auto is free to take it instead of the
/// transport's own allreduce, and nobody has said from which size on.
bool Plans::races_ring(const Bucket& bucket, const Request& request) const {
  constexpr std::uint64_t kLeast = std::uint64_t{256} << 10;  // below it latency decides
  const Options& options = setup_.options;
  const bool open = options.schedule == "auto" && options.trial_calls > 0 && !setup_.links_given &&
                    options.deadline == 0 && setup_.exec().place != Place::cuda &&
                    !setup_.places_differ;
  if (!open || !request.may_go_by_ring()) return false;
  std::uint64_t bytes = 0;
  for (const Segment& segment : request.segments()) {
    bytes += segment.elements.size() * kernels::travelling_bytes(segment.elements.type());
  }
  const bool dense = bucket.compressed == 0 || bucket.costs.enough;
  return dense && bytes >= kLeast && setup_.world.ranks > 1 &&
         setup_.transport().native_all_reduce();
}

std::string Plans::refuse_capture(const Request& request) const {
  if (std::string refusal = request.capture_refusal(); !refusal.empty()) return refusal;
  if (parameters_.step_begun()) {
    return "a call of a step that may be discarded cannot be captured into a CUDA graph";
  }
  if (stage_of(request.segments()) + 1 != setup_.stages.size()) {
    return "this call cannot be captured into a CUDA graph: each replay would keep as much as the "
           "warm-up does now";
  }
  const auto known = buckets_.find(id_of(request));
  const Bucket* const bucket = known == buckets_.end() ? nullptr : &known->second;
  return comm::refuse_capture(bucket, setup_.options, *setup_.compressor, setup_.transport());
}

/// Keeps a program whose buckets differ from step to step from taking ever more memory: forgets
/// those that were called least recently. One that has each parameter in up to four buckets keeps
/// them all. Depends on the calls alone, so all ranks forget alike.
void Plans::forget_old() {
  constexpr std::size_t kSegments = std::size_t{1} << 16;  // some 8 MB
  std::size_t known = 0;
  for (const auto& entry : seen_) known += entry.second.segments;
  while (known > kSegments + 4 * parameters_.states().size()) {
    auto oldest = seen_.end();
    for (auto entry = seen_.begin(); entry != seen_.end(); ++entry) {
      if (entry->second.captured || entry->second.call == device_calls_.number()) continue;
      if (oldest == seen_.end() || entry->second.call < oldest->second.call) oldest = entry;
    }
    if (oldest == seen_.end()) return;
    known -= oldest->second.segments;
    forget(oldest->first);
  }
}

void Plans::forget(const Request& request) {
  const std::uint64_t id = id_of(request);
  const auto known = seen_.find(id);
  if (known != seen_.end() && !known->second.captured) forget(id);
}

/// Leaves no trace of a bucket.
void Plans::forget(std::uint64_t id) {
  device_calls_.await_all();  // which may use its memory
  device_calls_.poll();
  const auto bucket = buckets_.find(id);
  const auto trial = trials_.find(id);
  if (bucket != buckets_.end()) {
    book_.forget(bucket->second.number);
    buckets_.erase(bucket);
  }
  if (trial != trials_.end()) {
    book_.forget(trial->second.first().number);
    trials_.erase(trial);
  }
  seen_.erase(id);
}

}  // namespace winnow::comm
