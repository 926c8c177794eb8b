// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Owners' sums: adding what other ranks sent, and selecting and coding the result.
#include <algorithm>
#include <numeric>

#include "compress/compressor.hpp"
#include "compress/lists.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/stopwatch.hpp"
#include "kernels/memory_ops.hpp"
#include "kernels/ordered_sum.hpp"

namespace winnow::compress {

namespace {

using kernels::Term;

/// The terms of all ranks; `own` is the term of `self`.
std::span<Term> take_terms(const Exec& exec, std::span<const MessageView> contributions,
                           std::uint32_t self, const Term& own) {
  const auto terms = exec.workspace->take<Term>(contributions.size());
  for (std::uint32_t rank = 0; rank < terms.size(); ++rank) {
    terms[rank] = rank == self ? own : term(contributions[rank]);
  }
  return terms;
}

/// Contributions as lists by local number. Takes the same scratch whatever they carry.
kernels::PlacedTerms place_lists(const Exec& exec, const Codings& codings, const Part& part,
                                 std::span<const MessageView> contributions) {
  const auto terms = take_terms(exec, contributions, part.self, {});
  const std::uint64_t count = part.partition.local_count(part.self);
  const std::uint64_t most = part.most_for(part.self);
  if (most == count) {  // then a message may carry every position
    const auto numbers = exec.workspace->take<std::uint32_t>(count);
    const auto there = kernels::scratch_of(exec).take<std::uint32_t>(count);
    if (!std::ranges::all_of(terms, &Term::is_list)) {
      std::iota(numbers.begin(), numbers.end(), 0U);
      kernels::copy(exec, std::as_writable_bytes(there), std::as_bytes(numbers));
    }
    for (Term& term : terms) {
      if (!term.is_list()) term.index = there;
    }
  }
  return kernels::place_terms(exec, terms, codings.exact() ? 0 : most);
}

/// Says where in the list of touched sums those of each piece will be.
void place_touched(const Exec& exec, const Part& part, Owned& owned) {
  const auto runs = exec.workspace->take<kernels::ListRun>(part.pieces.size());
  std::size_t count = 0;
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < part.pieces.size(); ++i) {
    if (part.pieces[i].own_k == 0) continue;
    runs[count++] = {.begin = end, .count = &owned.touched_counts[i]};
    end += owned.listed[i].most;
  }
  owned.touched_runs = kernels::place(exec, std::span<const kernels::ListRun>(runs.first(count)));
}

/// The selection from the sums of the pieces. `room` is for the sums that terms touch, of one piece
/// behind the other.
std::span<const PickJob> take_pick_jobs(const Exec& exec, const Part& part, const Owned& owned,
                                        const kernels::PlacedTerms& terms, const List& list,
                                        const kernels::SumLists& room) {
  const auto jobs = exec.workspace->take<PickJob>(part.pieces.size());
  std::size_t count = 0, at = 0, end = 0;
  for (std::size_t i = 0; i < part.pieces.size(); ++i) {
    const Piece& piece = part.pieces[i];
    if (piece.own_k == 0) continue;
    const std::uint64_t most = owned.listed[i].most;
    const std::size_t k = part.variable_k ? list.index.size() : piece.own_k;
    jobs[count] = {.owned = owned.listed[i],
                   .fed = &owned.results[i],
                   .terms = terms,
                   .out = {list.index.subspan(at, k), list.value.subspan(at, k),
                           room.touched.subspan(end, most), room.sum.subspan(end, most)},
                   .kept = list.size,
                   .touched_count = &owned.touched_counts[i],
                   .bounds = piece.state->bounds,
                   .result = &owned.results[part.pieces.size() + count]};
    ++count;
    if (!part.variable_k) at += k;
    end += most;
  }
  return jobs.first(count);
}

std::span<std::byte> encode_selected_sums(const Exec& exec, const Choice& choice,
                                          const Codings& codings, const EncodeJob& job,
                                          std::span<const MessageView> contributions, Owned& owned,
                                          std::span<std::byte> out) {
  const Part& part = job.part;
  Workspace& scratch = kernels::scratch_of(exec);
  List list = take_list(exec, part.owner_k[part.self], part.variable_k);
  std::uint64_t room = 0;  // for what the pieces have, one behind the other
  for (std::size_t i = 0; i < owned.listed.size(); ++i) {
    if (part.pieces[i].own_k > 0) room += owned.listed[i].most;
  }
  const auto touched = scratch.take<std::uint32_t>(room);
  const auto sum = scratch.take<float>(room);
  place_touched(exec, part, owned);
  const kernels::ScratchScope scope(exec);
  const kernels::PlacedTerms terms = place_lists(exec, codings, part, contributions);
  owned.touched = {touched, sum};
  const auto jobs = take_pick_jobs(exec, part, owned, terms, list, {{}, {}, touched, sum});
  scratch.reserve(choice.selection->pick_scratch(exec, jobs));
  {
    const kernels::Stopwatch watch(job.add_seconds);
    choice.selection->pick(exec, jobs);
    if (part.variable_k) shorten(exec, list);
  }
  owned.chosen = {list.index, list.value};
  const kernels::Stopwatch watch(job.encode_seconds);
  SealList sums{.header = part.of_owner(job.header, part.self),
                .shape = part.shapes.sums[part.self],
                .random = job.random,
                .index = list.index,
                .value = list.value,
                .poison = {.results = owned.results.first(part.pieces.size() + jobs.size())},
                .status = job.status};
  sums.header.k = list.index.size();
  const MessageView sealed = part.variable_k ? seal_variable(exec, codings, sums, out)
                                             : seal_values(exec, codings, sums, out);
  return out.first(sealed.bytes.size());
}

/// Where all ranks know the support, so that values add one by one.
std::span<std::byte> encode_known_sums(const Exec& exec, const Codings& codings,
                                       const EncodeJob& job,
                                       std::span<const MessageView> contributions, Owned& owned,
                                       std::span<std::byte> out) {
  const Part& part = job.part;
  owned.left = kernels::scratch_of(exec).take<float>(owned.acc.size());
  {
    const kernels::Stopwatch watch(job.add_seconds);
    const auto terms = take_terms(exec, contributions, part.self, {.value = owned.acc});
    for (Term& term : terms) term.index = {};
    kernels::ordered_sum(exec, {.terms = {terms},
                                .sums = kernels::alone({owned.left}),
                                .not_finite = &owned.not_finite[1]});
    if (owned.drawn.empty()) clear_own_gaps(exec, part, owned.left);  // a sign, say, is never 0
  }
  const kernels::Stopwatch watch(job.encode_seconds);
  Header header = part.of_owner(job.header, part.self);
  header.k = owned.acc.size();
  clear_poisoned(exec, header, owned.not_finite, owned.left);
  (void)seal_values(exec, codings,
                    {header,
                     part.shapes.sums[part.self],
                     job.random,
                     owned.drawn,
                     owned.left,
                     {.words = owned.not_finite, .results = owned.results},
                     job.status},
                    out);
  return out;
}

}  // namespace

std::span<std::byte> Compressor::encode_sums(const Exec& exec, const EncodeJob& job,
                                             std::span<const MessageView> contributions,
                                             Owned& owned, std::span<std::byte> out) const {
  if (knows_support()) return encode_known_sums(exec, codings_, job, contributions, owned, out);
  return encode_selected_sums(exec, choice_, codings_, job, contributions, owned, out);
}

}  // namespace winnow::compress
