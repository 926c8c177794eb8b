// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Supports on which ranks agree before values travel.
#include <algorithm>
#include <limits>
#include <tuple>
#include <winnow/error.hpp>

#include "compress/lists.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/stopwatch.hpp"
#include "kernels/exec/together.hpp"
#include "kernels/memory_ops.hpp"
#include "kernels/ordered_sum.hpp"

namespace winnow::compress {

namespace {

using kernels::SelectResult;

/// Terms that name nothing, one for each owner.
kernels::PlacedTerms no_terms(const Exec& exec, std::size_t owners) {
  const auto terms = exec.workspace->take<kernels::Term>(owners);
  std::ranges::fill(terms, kernels::Term());
  return kernels::place_terms(exec, terms);
}

/// The header of a message that carries `count` values, at as many positions of an owner.
Header whole(Header header, std::uint32_t owner, std::uint64_t count) {
  header.owner = owner;
  header.count = header.k = count;
  return header;
}

/// The selection from the pieces, as SumsJob says, by this rank's acc alone.
struct SumsJobs {
  std::span<SumsJob> jobs;     ///< of all pieces, with room for what any rank owns and chooses
  std::span<SumsJob> of_turn;  ///< once they are known: what this rank chooses in this call
  std::span<kernels::OwnedSums> own;  ///< lists of the pieces
};

/// Takes scratch as any rank needs it, and lists of what this one owns. `index` and `value` have
/// room for what any rank chooses.
SumsJobs take_sums_jobs(const Exec& exec, const Compressor& compressor, const Part& part,
                        std::span<std::uint32_t> index, std::span<float> value) {
  const std::size_t pieces = part.pieces.size();
  const kernels::PlacedTerms terms = no_terms(exec, part.partition.owners());
  const auto touched_counts = kernels::scratch_of(exec).take<std::uint64_t>(pieces);
  SumsJobs sums = {};
  std::tie(sums.jobs, sums.own) = exec.workspace->take<SumsJob, kernels::OwnedSums>(pieces);
  for (std::size_t i = 0; i < pieces; ++i) {
    const Piece& piece = part.pieces[i];
    const std::size_t most = part.most_owned(piece), most_k = compressor.kept(most);
    sums.own[i] = take_own_list(exec, part, piece, list_room(most, most_k), 0);
    sums.jobs[i] = {.owned = sums.own[i],
                    .terms = terms,
                    .out = {.index = index.first(std::min(most_k, index.size())),
                            .value = value.first(std::min(most_k, value.size()))},
                    .touched_count = &touched_counts[i],
                    .bounds = piece.state->bounds};
    sums.jobs[i].owned.count = most;
  }
  return sums;
}

/// Leaves the jobs of pieces that this rank chooses from.
void cut_to_turn(const Part& part, std::span<SelectResult> results, SumsJobs& sums,
                 std::span<std::uint32_t> index, std::span<float> value) {
  std::size_t at = 0, count = 0;
  for (std::size_t i = 0; i < part.pieces.size(); ++i) {
    const std::size_t k = part.pieces[i].own_k;
    if (k == 0) continue;
    SumsJob job = sums.jobs[i];
    job.owned = sums.own[i];
    job.accumulated = &results[i];
    job.out = {.index = index.subspan(at, k), .value = value.subspan(at, k)};
    job.result = &results[part.pieces.size() + count];
    sums.jobs[count++] = job;
    at += k;
  }
  sums.of_turn = sums.jobs.first(count);
}

}  // namespace

void accumulate(const Exec& exec, const EncodeJob& job, std::span<const kernels::OwnedSums> own,
                std::span<SelectResult> results) {
  const Workspace::Scope scope(*exec.workspace);
  const auto jobs = exec.workspace->take<kernels::FeedbackSelectJob>(job.part.pieces.size());
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const Piece& piece = job.part.pieces[i];
    Bounds* const bounds = piece.state->bounds;
    jobs[i] = {.spans = {piece.elements, piece.residual(), job.decay},
               .base = piece.base,
               .state = &bounds->bound,
               .result = &results[i],
               .own_bound = &bounds->sum_bound.bound,
               .gradient_after = kernels::GradientAfter::accumulated};
    jobs[i].spans.precondition = piece.precondition;
    if (!own.empty()) jobs[i].spans.own = own[i].own;
  }
  kernels::scratch_of(exec).reserve(job.part.scratch.gradients);
  kernels::feedback_select(exec, jobs);
  for (const Piece& piece : job.part.pieces) piece.state->mark_dirty();
}

void Compressor::select(const Exec& exec, const EncodeJob& job, std::span<std::byte> out) const {
  WINNOW_EXPECTS(!variable_k(), name() + " selects no support of a known size; take topk");
  const Part& part = job.part;
  Workspace& scratch = kernels::scratch_of(exec);
  const kernels::ScratchScope scope(exec);
  // Room for what any owner chooses: which one this rank is changes from call to call.
  const std::uint64_t most = keeps_all() ? 0 : std::ranges::max(part.owner_k);
  const auto [index_room, value_room] = scratch.take<std::uint32_t, float>(most);
  const auto index = index_room.first(std::min(most, part.owner_k[part.self]));
  const auto results = scratch.take<SelectResult>(2 * part.pieces.size());
  SumsJobs sums = {};
  const Chooses* const how = chooses();
  if (how != nullptr) sums = take_sums_jobs(exec, *this, part, index_room, value_room);
  scratch.reserve(std::max(part.scratch.gradients, part.scratch.sums));
  accumulate(exec, job, sums.own, results);
  if (how != nullptr) {
    cut_to_turn(part, results, sums, index, value_room.first(index.size()));
    how->select_sums(exec, sums.of_turn);
  }
  const kernels::Stopwatch watch(job.encode_seconds);
  Header header = part.of_owner(job.header, part.self);
  header.k = part.owner_k[part.self];
  if (codings_.drawn()) draw(exec, codings_, header, job.status, index);
  const auto said = results.first(part.pieces.size() + sums.of_turn.size());
  (void)finish_message(exec, header, part.shapes.supports[part.self], index, out,
                       codings_.without_values(), {.results = said}, job.status);
}

void Compressor::take(const Exec& exec, const EncodeJob& job, const Owned& owned,
                      std::span<const Taken> taken) const {
  Exec sound = exec;
  if (job.status != nullptr) {
    sound.condition = kernels::sound(*job.status);
    kernels::together(exec, [&] {
      for (const Taken& one : taken) {
        kernels::fill(exec, one.value, std::numeric_limits<float>::quiet_NaN());
      }
    });
  }
  kernels::together(sound, [&] {
    for (const Taken& one : taken) {
      kernels::take_owned(sound, taken_job(job.part, owned, one), one.value);
    }
  });
}

void Compressor::code_taken(const Exec& exec, const EncodeJob& job, const Owned& owned,
                            std::span<const TakenMessage> messages) const {
  kernels::together(exec, [&] {
    for (const auto& [taken, missed, message] : messages) kernels::copy(exec, missed, taken.value);
  });
  Exec sound = exec;
  if (job.status != nullptr) {  // what is coded must be finite
    sound.condition = kernels::sound(*job.status);
    Exec spoiled = exec;
    spoiled.condition = kernels::spoiled(*job.status);
    kernels::together(spoiled, [&] {
      for (const TakenMessage& one : messages) kernels::fill(spoiled, one.missed, 0);
    });
  }
  const auto list_of = [&](const TakenMessage& one) {
    const std::uint32_t owner = one.taken.owner;
    return EncodeList{.header = whole(job.header, owner, one.missed.size()),
                      .shape = job.part.shapes.values[owner],
                      .random = job.key_of(owner),
                      .index = {},
                      .value = one.missed,
                      .poison = {},
                      .status = job.status};
  };
  kernels::together(exec, [&] {
    for (const TakenMessage& one : messages) {
      code_values(exec, codings_, list_of(one), one.message);
    }
  });
  kernels::together(exec, [&] {
    for (const TakenMessage& one : messages) {
      (void)finish_coded(exec, codings_, list_of(one), one.message);
    }
  });
  kernels::together(sound, [&] {
    for (const auto& [taken, missed, message] : messages) {
      put(sound, job.part, owned, {taken.owner, taken.index, missed});
    }
  });
}

void Compressor::add(const Exec& exec, const EncodeJob& job, std::span<const MessageView> terms,
                     const Addition& out) const {
  const kernels::ScratchScope scope(exec);
  const auto not_finite = kernels::take_zeros<std::uint32_t>(exec, 1);
  {
    const kernels::Stopwatch watch(job.add_seconds);
    const auto in_order = exec.workspace->take<kernels::Term>(terms.size());
    std::ranges::transform(terms, in_order.begin(), &MessageView::term);
    kernels::ordered_sum(
        exec,
        {.terms = {in_order}, .sums = kernels::alone({out.sum}), .not_finite = not_finite.data()});
    if (out.message.empty()) return;
  }
  // If the support is every position, gaps travel too, and a sign, say, is never 0.
  if (out.sum.size() == job.part.partition.local_count(job.part.self)) {
    clear_own_gaps(exec, job.part, out.sum);
  }
  const kernels::Stopwatch watch(job.encode_seconds);
  clear_poisoned(exec, {}, not_finite, out.sum);
  const Header header = whole(job.header, job.part.self, out.sum.size());
  const Shape& shape = job.part.shapes.values[job.part.self];
  encode_values(exec, codings_,
                {header, shape, job.random, {}, out.sum, {.words = not_finite}, job.status},
                out.message);
}

}  // namespace winnow::compress
