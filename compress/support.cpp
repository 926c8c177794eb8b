// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Supports on which ranks agree before values travel.
#include "compress/support.hpp"

#include <algorithm>
#include <winnow/error.hpp>

#include "compress/lists.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/stopwatch.hpp"
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

/// Lists of what this rank owns of each piece, with room for what any rank owns. Makes sure that
/// what picks from them finds its scratch.
std::span<kernels::OwnedSums> take_own_lists(const Exec& exec, const Compressor& compressor,
                                             const Part& part) {
  const auto lists = exec.workspace->take<kernels::OwnedSums>(part.pieces.size());
  std::size_t most_scratch = 0;
  for (std::size_t i = 0; i < lists.size(); ++i) {
    const std::size_t most = part.most_owned(part.pieces[i]), most_k = compressor.kept(most);
    lists[i] = take_own_list(exec, part, part.pieces[i], list_room(most, most_k), 0);
    kernels::OwnedSums largest = lists[i];
    largest.count = most;
    most_scratch = std::max(
        most_scratch, kernels::select_sums_scratch(exec, largest, most_k, part.partition.owners()));
  }
  kernels::scratch_of(exec).reserve(most_scratch);
  return lists;
}

}  // namespace

void feed_back(const Exec& exec, const EncodeJob& job, std::span<const kernels::OwnedSums> own,
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
               .gradient_after = kernels::GradientAfter::fed};
    jobs[i].spans.precondition = piece.precondition;
    if (!own.empty()) jobs[i].spans.own = own[i].own;
  }
  kernels::scratch_of(exec).reserve(kernels::feedback_select_scratch(exec, jobs));
  kernels::feedback_select(exec, jobs);
  for (const Piece& piece : job.part.pieces) piece.state->mark_dirty();
}

void Compressor::select(const Exec& exec, const EncodeJob& job, std::span<std::byte> out) const {
  WINNOW_EXPECTS(!variable_k(), name() + " picks no support of a known size; take topk");
  const Part& part = job.part;
  Workspace& scratch = kernels::scratch_of(exec);
  const kernels::ScratchScope scope(exec);
  // Room for what any owner picks: which one this rank is changes from call to call.
  const std::size_t most = keeps_all() ? 0 : std::ranges::max(part.owner_k);
  const std::size_t picked = keeps_all() ? 0 : part.owner_k[part.self];
  const auto index = scratch.take<std::uint32_t>(most).first(picked);
  const auto value = scratch.take<float>(most).first(picked);
  const auto results = scratch.take<SelectResult>(2 * part.pieces.size());
  const auto touched_count = scratch.take<std::uint64_t>(1);
  const kernels::PlacedTerms terms = no_terms(exec, part.partition.owners());
  const auto own =
      knows_support() ? std::span<kernels::OwnedSums>() : take_own_lists(exec, *this, part);
  feed_back(exec, job, own, results);
  std::size_t at = 0, end = part.pieces.size();
  for (std::size_t i = 0; i < own.size(); ++i) {
    const Piece& piece = part.pieces[i];
    if (piece.own_k == 0) continue;
    choice_.selection->pick(
        exec, {.owned = own[i],
               .fed = &results[i],
               .terms = terms,
               .out = {index.subspan(at, piece.own_k), value.subspan(at, piece.own_k), {}, {}},
               .touched_count = touched_count.data(),
               .bounds = piece.state->bounds,
               .result = &results[end++]});
    at += piece.own_k;
  }
  const kernels::Stopwatch watch(job.encode_seconds);
  Header header = part.of_owner(job.header, part.self);
  header.k = part.owner_k[part.self];
  if (draws()) draw(exec, codings_, header, index);
  (void)seal(exec, header, index, out, codings_.without_values(), {.results = results.first(end)});
}

void Compressor::take(const Exec& exec, const EncodeJob& job, const Owned& owned,
                      const Taken& taken, std::span<std::byte> out) const {
  Workspace& scratch = kernels::scratch_of(exec);
  const Workspace::Scope scope(scratch);
  kernels::OwnedJob residuals = taken_job(job.part, owned, taken);
  const auto missed = scratch.take<float>(out.empty() ? 0 : taken.value.size());
  kernels::take_owned(exec, residuals, taken.value);  // now all memory has been taken
  if (out.empty()) return;
  kernels::copy(exec, missed, taken.value);
  const Header header = whole(job.header, taken.owner, missed.size());
  seal_values(exec, codings_, {header, job.random, {}, missed}, out);
  residuals.values.value = missed;
  kernels::store_owned(exec, residuals);
}

void Compressor::add(const Exec& exec, const EncodeJob& job, std::span<const MessageView> terms,
                     const Addition& out) const {
  const kernels::ScratchScope scope(exec);
  const auto not_finite = kernels::take_zeros<std::uint32_t>(exec, 1);
  {
    const kernels::Stopwatch watch(job.add_seconds);
    const auto in_order = exec.workspace->take<kernels::Term>(terms.size());
    std::ranges::transform(terms, in_order.begin(), term);
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
  seal_values(exec, codings_, {header, job.random, {}, out.sum, {.words = not_finite}},
              out.message);
}

MessageView join_values(const MessageView& support, const MessageView& values) {
  MessageView joined = support;
  joined.header.kind = Header::Kind::sum;
  joined.header.flags |= values.header.flags;
  joined.bytes = {};
  joined.value = values.value;
  joined.format = values.format;
  joined.coded = values.coded;
  return joined;
}

}  // namespace winnow::compress
