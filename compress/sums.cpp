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
    terms[rank] = rank == self ? own : contributions[rank].term;
  }
  return terms;
}

/// Contributions as lists by local number. Takes the same scratch whatever they carry.
kernels::PlacedTerms place_lists(const Exec& exec, const Compressor& compressor, const Part& part,
                                 std::span<const MessageView> contributions) {
  const auto terms = take_terms(exec, contributions, part.self, {});
  const std::uint64_t count = part.partition.local_count(part.self);
  const std::uint64_t most = part.most_for[part.self];
  if (most == count) {  // then a message may carry every position
    const auto numbers = exec.workspace->take<std::uint32_t>(count);
    const auto placed = kernels::scratch_of(exec).take<std::uint32_t>(count);
    if (!std::ranges::all_of(terms, &Term::is_list)) {
      std::iota(numbers.begin(), numbers.end(), 0U);
      kernels::copy(exec, std::as_writable_bytes(placed), std::as_bytes(numbers));
    }
    for (Term& term : terms) {
      if (!term.is_list()) term.index = placed;
    }
  }
  return kernels::place_terms(exec, terms, compressor.decoded_room(most));
}

/// Takes room for the sums that terms touch, of one piece behind the other.
kernels::SumLists take_touched(const Exec& exec, const Part& part, OwnedLists& own) {
  const auto runs = exec.workspace->take<kernels::ListRun>(part.pieces.size());
  std::size_t count = 0;
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < part.pieces.size(); ++i) {
    if (part.pieces[i].own_k == 0) continue;
    runs[count++] = {.begin = end, .count = &own.touched_counts[i]};
    end += own.listed[i].most;
  }
  const auto [touched, sum] = kernels::scratch_of(exec).take<std::uint32_t, float>(end);
  own.touched = {touched, sum};
  own.touched_runs = kernels::place(exec, std::span<const kernels::ListRun>(runs.first(count)));
  return {.index = {}, .value = {}, .touched = touched, .sum = sum};
}

/// The selection from the sums of the pieces. `room` is of take_touched.
std::span<const SumsJob> take_sums_jobs(const Exec& exec, const Part& part, const Owned& owned,
                                        const kernels::PlacedTerms& terms, const List& list,
                                        const kernels::SumLists& room) {
  const auto& own = std::get<OwnedLists>(owned.sums);
  const auto jobs = exec.workspace->take<SumsJob>(part.pieces.size());
  std::size_t count = 0, at = 0, end = 0;
  for (std::size_t i = 0; i < part.pieces.size(); ++i) {
    const Piece& piece = part.pieces[i];
    if (piece.own_k == 0) continue;
    const std::uint64_t most = own.listed[i].most;
    const List chosen = list.of_piece(piece.own_k, at);
    jobs[count] = {.owned = own.listed[i],
                   .accumulated = &owned.results[i],
                   .terms = terms,
                   .out = {chosen.index, chosen.value, room.touched.subspan(end, most),
                           room.sum.subspan(end, most)},
                   .kept = chosen.size,
                   .touched_count = &own.touched_counts[i],
                   .bounds = piece.state->bounds,
                   .result = &owned.results[part.pieces.size() + count]};
    ++count;
    end += most;
  }
  return jobs.first(count);
}

/// The sums of Part::self on their way into a message.
EncodeList sums_of(const EncodeJob& job, std::span<const std::uint32_t> index,
                   std::span<float> value, const kernels::PoisonSources& poison) {
  const Part& part = job.part;
  EncodeList sums{.header = part.of_owner(job.header, part.self),
                  .shape = part.shapes.sums[part.self],
                  .random = job.random,
                  .index = index,
                  .value = value,
                  .poison = poison,
                  .status = job.status};
  sums.header.k = value.size();
  return sums;
}

/// Adds the contributions and selects among the sums.
EncodeList choose_sums(const Exec& exec, const Compressor& compressor, const EncodeJob& job,
                       std::span<const MessageView> contributions, Owned& owned) {
  const Part& part = job.part;
  const Chooses& how = *compressor.chooses();
  List list = take_list(exec, part.owner_k[part.self], how.variable_k);
  const kernels::SumLists room = take_touched(exec, part, std::get<OwnedLists>(owned.sums));
  const kernels::ScratchScope scope(exec);
  const kernels::PlacedTerms terms = place_lists(exec, compressor, part, contributions);
  const auto jobs = take_sums_jobs(exec, part, owned, terms, list, room);
  kernels::scratch_of(exec).reserve(part.scratch.sums);
  const kernels::Stopwatch watch(job.add_seconds);
  how.select_sums(exec, jobs);
  shorten(exec, list);
  return sums_of(job, list.index, list.value,
                 {.results = owned.results.first(part.pieces.size() + jobs.size())});
}

/// Adds values one by one, at a support that all ranks know.
EncodeList add_known(const Exec& exec, const EncodeJob& job,
                     std::span<const MessageView> contributions, const Owned& owned) {
  const auto& [index, acc, not_finite] = std::get<OwnedAcc>(owned.sums);
  const auto left = kernels::scratch_of(exec).take<float>(acc.size());
  {
    const kernels::Stopwatch watch(job.add_seconds);
    const auto terms = take_terms(exec, contributions, job.part.self, {.value = acc});
    for (Term& term : terms) term.index = {};
    kernels::ordered_sum(
        exec, {.terms = {terms}, .sums = kernels::alone({left}), .not_finite = &not_finite[1]});
    if (index.empty()) clear_own_gaps(exec, job.part, left);  // a sign, say, is never 0
  }
  const kernels::Stopwatch watch(job.encode_seconds);
  clear_poisoned(exec, job.header, not_finite, left);
  return sums_of(job, index, left, {.words = not_finite, .results = owned.results});
}

}  // namespace

std::span<std::byte> Compressor::encode_sums(const Exec& exec, const EncodeJob& job,
                                             std::span<const MessageView> contributions,
                                             Owned& owned, std::span<std::byte> out) const {
  const EncodeList sums = knows_support() ? add_known(exec, job, contributions, owned)
                                          : choose_sums(exec, *this, job, contributions, owned);
  owned.left = {.index = sums.index, .value = sums.value};
  const kernels::Stopwatch watch(job.encode_seconds);
  const MessageView message = variable_k() ? encode_variable(exec, codings_, sums, out)
                                           : encode_values(exec, codings_, sums, out);
  return out.first(message.bytes.size());
}

}  // namespace winnow::compress
