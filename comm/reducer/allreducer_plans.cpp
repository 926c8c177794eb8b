// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Plans buckets: at the first call of each, and at the end of a trial.
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <winnow/error.hpp>

#include "comm/plan/agreement.hpp"
#include "comm/plan/hash.hpp"
#include "comm/plan/planner.hpp"
#include "comm/plan/scatter_plan.hpp"
#include "comm/reducer/allreducer_impl.hpp"
#include "comm/reducer/native_only.hpp"
#include "comm/schedule/scatter.hpp"
#include "comm/schedule/schedule.hpp"
#include "comm/transport/abort_on_error.hpp"
#include "comm/transport/failure.hpp"
#include "kernels/arithmetic/element.hpp"

namespace winnow {

using comm::Bucket;
using comm::BucketPart;
using comm::Failure;
using compress::Header;

/// The stage of the compressor's warm-up, which the first parameter that has elements decides.
unsigned AllReducer::Impl::stage_of(std::span<const Segment> segments) const {
  if (stages.size() == 1) return 0;
  const auto first = std::ranges::find_if(
      segments, [](const Segment& segment) { return segment.elements.size() > 0; });
  const auto known = first == segments.end() ? parameters.end() : parameters.find(first->id);
  return compressor->stage_of(known == parameters.end() ? 0 : known->second.calls);
}

/// Identifies a bucket and the stage that it is in: with another density it counts as new.
std::uint64_t AllReducer::Impl::id_of(std::span<const Segment> segments, ReduceOp of_call) const {
  const std::uint64_t id = comm::bucket_id(segments, of_call);
  const unsigned stage = stage_of(segments);
  return stage + 1 == stages.size() ? id : comm::Hash().add(id).add(stage).value();
}

/// Likewise for the current call. One that cannot be made has another id, so no call has met it.
std::uint64_t AllReducer::Impl::id_of_call(std::span<const Segment> segments) const {
  const std::uint64_t id = id_of(segments, op);
  if (output == nullptr) return id;
  const bool wrong = !comm::refuse_scatter(segments.front(), *output, op, world()).empty();
  return comm::Hash().add(id).add(wrong ? "wrong reduce_scatter" : "reduce_scatter").value();
}

comm::World AllReducer::Impl::world() const {
  comm::World all{transport->size(),       transport->rank(), &topology,  links,
                  options.trial_calls > 0, exec.place,        one_of_many};
  all.links.ring = ring();
  return all;
}

/// The bucket of the current call, with scratch for what its parts do not take as given. Where
/// there is no memory for that the call goes on, to fail with the bucket in its residuals.
Bucket& AllReducer::Impl::find(std::span<const Segment> segments) {
  const std::uint64_t id = id_of_call(segments);
  if (const auto last = seen.find(id); last != seen.end()) {
    last->second.call = calls;
    last->second.captured |= kernels::is_captured(exec);
  }
  Bucket* bucket = nullptr;
  if (const auto known = buckets.find(id); known != buckets.end()) {
    bucket = &known->second;
    compare_call(*bucket, segments);
  } else if (const auto trial = trials.find(id); trial != trials.end()) {
    compare_call(trial->second.first(), segments);
    bucket = &next_plan(trial->second);
  } else {
    return register_bucket(id, segments);
  }
  try {
    widened.view(exec, segments, *bucket, preconditioner);
  } catch (const std::exception& error) {
    unmet = comm::failure_of(error);
    widened.view_given(segments);
  }
  return *bucket;
}

/// The header by which ranks compare a call.
Header AllReducer::Impl::agreement_of(const Bucket& bucket) const {
  Header mine{.digest = digest, .bucket = bucket.plan, .call = calls, .count = bucket.count};
  for (const BucketPart& part : bucket.parts) mine.k += part.part.most_k;
  return mine;
}

/// The current call in words, by which ranks find how theirs differ.
std::string AllReducer::Impl::lines_of(std::span<const Segment> segments) const {
  std::string lines = comm::lines_of(segments, op, options);
  return output == nullptr ? lines : "reduce_scatter: " + lines;
}

/// With checksum=all, before anything of a known bucket travels: dense sums, sums within a node and
/// values at a support go without a header that would name their bucket. Ranks to which it is new
/// compare it likewise in register_bucket. If the ranks cannot meet, the call goes on, to fail with
/// the bucket in its residuals.
void AllReducer::Impl::compare_call(const Bucket& bucket, std::span<const Segment> segments) {
  if (options.checksum != Checksum::all || transport->size() == 1) return;
  std::string refused;
  try {
    refused = comm::agree(context.control(), context.host(), agreement_of(bucket),
                          {.options = common_options, .bucket = [&] { return lines_of(segments); }},
                          deadline());
  } catch (const std::exception& error) {
    unmet = comm::failure_of(error);
    transport->abort(unmet->text, unmet->kind);
  }
  if (!refused.empty()) errors.usage_error(comm::with_call_here(std::move(refused), segments));
}

/// The plan of a bucket in a trial; at the trial's end, the settled one.
Bucket& AllReducer::Impl::next_plan(comm::Trial& trial) {
  if (!trial.due()) return trial.plan();
  const std::uint64_t id = trial.first().id;
  Bucket* best = &trial.first();
  try {
    best = trial.compare(context.control(), context.host(), deadline());
    if (best == nullptr) return trial.plan();
  } catch (const std::exception& error) {
    comm::abort_by(*transport, error);  // so that the call which follows fails, and loses nothing
  }
  Bucket& settled = buckets.emplace(id, std::move(*best)).first->second;
  trials.erase(id);
  book.replan(settled);
  log->plan(settled, book.of(settled));
  return settled;
}

/// The first call of a bucket: plans it and compares the plan with all ranks. Whatever takes memory
/// comes before the ranks meet, so that all of them learn if there is none. Leaves no trace if they
/// disagree or others make another call. If the ranks cannot meet, the call goes on, to fail with
/// the bucket in its residuals.
Bucket& AllReducer::Impl::register_bucket(std::uint64_t id, std::span<const Segment> segments) {
  if (completions != nullptr && completions->has_captured()) await_calls();  // replays count, too
  std::vector<std::uint64_t> fresh;
  Header mine{.digest = digest, .bucket = id, .call = calls};
  Bucket* known = nullptr;
  std::string refusal;
  try {
    for (const Segment& segment : segments) {
      if (!parameters.contains(segment.id)) fresh.push_back(segment.id);
    }
    std::string native = output != nullptr ? std::string() : comm::native_only_reason(segments, op);
    if (output != nullptr) {
      refusal = comm::refuse_scatter(segments.front(), *output, op, world());
    }
    if (refusal.empty() && op > ReduceOp::product) {
      refusal = "operation " + std::to_string(static_cast<int>(op)) + " is none of ReduceOp";
    }
    if (refusal.empty()) refusal = comm::refuse(segments, parameters, !native.empty());
    if (refusal.empty()) refusal = comm::refuse_memory(segments, exec.place);
    if (refusal.empty() && output != nullptr) {
      const Segment written{.elements = *output, .id = segments.front().id};
      refusal = comm::refuse_memory({&written, 1}, exec.place);
    }
    if (refusal.empty()) {
      known = &plan(id, segments, std::move(native));
      widened.view(exec, segments, *known, preconditioner);
      mine = agreement_of(*known);
    }
  } catch (const std::exception& error) {
    refusal = comm::text_of(error);
  }
  if (!refusal.empty()) mine.flags = Header::kRefused;
  std::string refused;
  try {
    refused = comm::agree(context.control(), context.host(), mine,
                          {.refusal = refusal,
                           .options = common_options,
                           .bucket = [&] { return lines_of(segments); }},
                          deadline());
  } catch (const std::exception& error) {
    unmet = comm::failure_of(error);
  }
  const bool others_differ = unmet && unmet->kind == FailureKind::usage;
  if (!refused.empty() || others_differ || !refusal.empty()) {
    forget(id);
    for (const std::uint64_t parameter : fresh) parameters.erase(parameter);
    if (!refused.empty()) {
      const bool own = !refusal.empty();
      errors.usage_error(own ? refused : comm::with_call_here(std::move(refused), segments));
    }
    Failure why = std::exchange(unmet, {}).value_or(Failure());
    try {
      why.text += "; ";
      why.text += refusal.empty() ? "new here: a bucket of " + comm::text_of(segments) : refusal;
    } catch (const std::bad_alloc&) {
      // The rest of the text is not worth the call's own error.
    }
    fail(std::move(why));
  }
  residuals = count_residuals();
  forget_old();
  log->plan(*known, book.of(*known));
  return *known;
}

/// Plans the current bucket, and takes the memory that its calls need beside scratch.
Bucket& AllReducer::Impl::plan(std::uint64_t id, std::span<const Segment> segments,
                               std::string native_only_reason) {
  comm::World world = this->world();
  const auto plan_by = [&](const Options& by) {
    const compress::Compressor& chosen = stages[stage_of(segments)];
    if (output != nullptr) {
      return comm::plan_scatter(id, segments.front(), by, world, chosen, parameters);
    }
    return native_only_reason.empty()
               ? comm::plan_bucket(id, segments, by, world, chosen, parameters)
               : comm::plan_native_only(id, segments, native_only_reason, world);
  };
  const auto register_plan = [&](Bucket& plan) {
    plan.dense_seconds = dense_seconds(plan, segments);
    book.register_schedule(plan.schedule);
  };
  Bucket bucket = plan_by(options);
  comm::make_states(exec, bucket, preconditioner);
  if (undo.begun()) {
    for (const BucketPart& part : bucket.parts) {
      for (const compress::Piece& piece : part.part.pieces) undo.make_room(exec, *piece.parameter);
    }
  }
  queue->reserve(segments.size());
  exchanges.reserve(bucket.parts.size());
  schedules.reserve(bucket.parts.size());
  register_plan(bucket);
  book.register_bucket(bucket, segments);
  if (completions != nullptr) completions->make_room(bucket.number + 1);
  try {
    seen.emplace(id, Seen{.call = calls, .segments = segments.size(), .captured = false});
    std::uint64_t bytes = 0;
    for (const Segment& segment : segments) {
      bytes += segment.elements.size() * kernels::travelling_bytes(segment.elements.type());
    }
    const bool by_ring = output == nullptr && races_ring(bucket, bytes);
    const std::optional<double> enough = bucket.enough;
    if (!enough && !by_ring) return buckets.emplace(id, std::move(bucket)).first->second;
    Options dense = options;
    dense.schedule = "dense";
    const std::string why = bucket.reason.substr(0, bucket.reason.size() - bucket.note.size());
    const std::size_t number = bucket.number;
    std::vector<Bucket> plans;
    plans.push_back(std::move(bucket));
    const auto add = [&] {
      Bucket& plan = plans.emplace_back(plan_by(dense));
      plan.reason = why + std::string(plan.note);
      plan.number = number;
      register_plan(plan);
    };
    if (enough) add();
    if (by_ring) {
      world.links.ring = 0;
      add();
    }
    book.begin_trial(number);
    return trials.try_emplace(id, std::move(plans), options.trial_calls, enough.value_or(0))
        .first->second.plan();
  } catch (...) {
    book.forget(bucket.number);
    throw;
  }
}

/// Seconds of a dense call of the plan's bucket, as predicted; 0 if links are not known.
double AllReducer::Impl::dense_seconds(const Bucket& plan,
                                       std::span<const Segment> segments) const {
  if (options.links.empty() || plan.count == 0 || transport->size() == 1) return 0;
  const std::size_t unit = plan.native_only
                               ? kernels::travelling_bytes(segments.front().elements.type())
                               : sizeof(float);
  const comm::CostShape shape{.ranks = transport->size(),
                              .count = (plan.count * unit + sizeof(float) - 1) / sizeof(float),
                              .topology = &topology};
  return comm::estimate_seconds(
      output == nullptr ? comm::find_schedule("dense") : comm::kDenseScatter, shape, links);
}

/// Whether dense by Winnow's ring is tried, too: where auto is free to take it instead of the
/// transport's own allreduce, and nobody has said from which size on.
bool AllReducer::Impl::races_ring(const Bucket& bucket, std::uint64_t bytes) const {
  constexpr std::uint64_t kLeast = std::uint64_t{256} << 10;  // below it latency decides
  const bool open = options.schedule == "auto" && options.trial_calls > 0 && !links_given &&
                    options.deadline == 0 && exec.place != Place::cuda && !places_differ;
  const bool dense = bucket.compressed == 0 || bucket.enough;
  return open && dense && bytes >= kLeast && transport->size() > 1 &&
         transport->native_all_reduce();
}

/// Keeps a program whose buckets differ from step to step from taking ever more memory: forgets
/// those that were called least recently. One that has each parameter in up to four buckets keeps
/// them all. Depends on the calls alone, so all ranks forget alike.
void AllReducer::Impl::forget_old() {
  constexpr std::size_t kSegments = std::size_t{1} << 16;  // some 8 MB
  std::size_t known = 0;
  for (const auto& entry : seen) known += entry.second.segments;
  while (known > kSegments + 4 * parameters.size()) {
    auto oldest = seen.end();
    for (auto entry = seen.begin(); entry != seen.end(); ++entry) {
      if (entry->second.captured || entry->second.call == calls) continue;
      if (oldest == seen.end() || entry->second.call < oldest->second.call) oldest = entry;
    }
    if (oldest == seen.end()) return;
    known -= oldest->second.segments;
    forget(oldest->first);
  }
}

/// Leaves no trace of a bucket.
void AllReducer::Impl::forget(std::uint64_t id) {
  await_calls();  // which may use its memory
  poll();
  const auto bucket = buckets.find(id);
  const auto trial = trials.find(id);
  if (bucket != buckets.end()) {
    book.forget(bucket->second.number);
    buckets.erase(bucket);
  }
  if (trial != trials.end()) {
    book.forget(trial->second.first().number);
    trials.erase(trial);
  }
  seen.erase(id);
}

}  // namespace winnow
