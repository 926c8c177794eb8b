// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/device/sums.hpp"

#include <algorithm>
#include <numeric>

#include "compress/device/message.hpp"
#include "compress/device/owned.hpp"
#include "compress/device/selection.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/stopwatch.hpp"
#include "kernels/memory_ops.hpp"
#include "kernels/ordered_sum.hpp"
#include "kernels/owned.hpp"
#include "kernels/select_sums.hpp"
#include "kernels/split.hpp"
#include "kernels/value_coding.hpp"

namespace winnow::compress {
namespace {

using kernels::Term;

/// What others sent, as terms of all owners, of whom `self` has `own`.
std::span<Term> take_terms(const Exec& exec, std::span<const MessageView> contributions,
                           std::uint32_t self, const Term& own) {
  const auto terms = exec.workspace->take<Term>(contributions.size());
  for (std::uint32_t rank = 0; rank < terms.size(); ++rank) {
    terms[rank] = rank == self ? own : term(contributions[rank]);
  }
  return terms;
}

/// Contributions as lists by local number, in device memory: those that carry every position get
/// their indices. Takes the same memory whether they do or not.
kernels::PlacedTerms place_lists(const Exec& exec, const Part& part,
                                 std::span<const MessageView> contributions) {
  const auto terms = take_terms(exec, contributions, part.self, {});
  const std::uint64_t count = part.partition.local_count(part.self);
  if (part.most_for(part.self) == count) {
    const auto numbers = exec.workspace->take<std::uint32_t>(count);
    const auto there = exec.device_workspace->take<std::uint32_t>(count);
    if (!std::ranges::all_of(terms, &Term::is_list)) {
      std::iota(numbers.begin(), numbers.end(), 0U);
      kernels::copy(exec, std::as_writable_bytes(there), std::as_bytes(numbers));
    }
    for (Term& term : terms) {
      if (!term.is_list()) term.index = there;
    }
  }
  return kernels::place_terms(exec, terms);
}

}  // namespace

std::span<std::byte> encode_selected_sums(const Exec& exec, const Codings& codings,
                                          const EncodeJob& job,
                                          std::span<const MessageView> contributions, Owned& owned,
                                          std::span<std::byte> out) {
  const Part& part = job.part;
  Workspace& scratch = *exec.device_workspace;
  DeviceSelection selection = take_selection(exec, part, part.owner_k[part.self]);
  std::uint64_t room = 0;  // of the lists of what terms name, one behind the other
  for (const kernels::OwnedSums& list : owned.listed) room += list.most;
  const auto touched = scratch.take<std::uint32_t>(room);
  const auto sum = scratch.take<float>(room);
  const Workspace::Scope scope(scratch);
  const kernels::PlacedTerms terms = place_lists(exec, part, contributions);
  std::size_t at = 0, end = 0, results = part.pieces.size();
  {
    const kernels::Stopwatch watch(job.add_seconds);
    for (std::size_t i = 0; i < part.pieces.size(); ++i) {
      const Piece& piece = part.pieces[i];
      if (piece.own_k == 0) continue;
      const kernels::OwnedSums& list = owned.listed[i];
      kernels::SumLists lists{selection.index, selection.value, touched.subspan(end, list.most),
                              sum.subspan(end, list.most)};
      end += list.most;
      if (part.any_k) {
        kernels::keep_sums(exec, {.owned = list,
                                  .fed = &owned.results[i],
                                  .terms = terms,
                                  .out = lists,
                                  .kept = selection.count.data(),
                                  .touched_count = &owned.device.touched_counts[i],
                                  .result = &owned.results[results++]});
        continue;
      }
      lists.index = lists.index.subspan(at, piece.own_k);
      lists.value = lists.value.subspan(at, piece.own_k);
      at += piece.own_k;
      kernels::select_sums(exec, {.owned = list,
                                  .fed = &owned.results[i],
                                  .terms = terms,
                                  .out = lists,
                                  .touched_count = &owned.device.touched_counts[i],
                                  .state = &piece.state->bounds->sum_bound,
                                  .result = &owned.results[results++]});
    }
    if (part.any_k) await_selection(exec, selection);
  }
  owned.touched = {touched, sum};
  owned.chosen = {selection.index, selection.value};
  const kernels::Stopwatch watch(job.encode_seconds);
  Header header = job.header;
  header.count = part.partition.local_count(part.self);
  const MessageView sealed = seal_selection(exec, codings, part,
                                            {header,
                                             job.random,
                                             selection.index,
                                             selection.value,
                                             {.results = owned.results.first(results)}},
                                            out);
  return out.first(sealed.bytes.size());
}

std::span<std::byte> encode_all_sums(const Exec& exec, const Codings& codings, const EncodeJob& job,
                                     std::span<const MessageView> contributions, Owned& owned,
                                     std::span<std::byte> out) {
  const Part& part = job.part;
  owned.left = exec.device_workspace->take<float>(owned.acc.size());
  {
    const kernels::Stopwatch watch(job.add_seconds);
    const auto terms = take_terms(exec, contributions, part.self, {.value = owned.acc});
    kernels::ordered_sum(
        exec, {.terms = {terms}, .sum = owned.left, .not_finite = &owned.device.not_finite[1]});
    clear_own_gaps(exec, part, owned.left);
  }
  const kernels::Stopwatch watch(job.encode_seconds);
  Header header = job.header;
  header.count = header.k = owned.acc.size();
  kernels::quantize(exec, codings.value, job.random, owned.left,
                    lay_out(header.count, header.k, out, codings).value_part);
  seal_on_device(exec, header, {}, {.words = owned.device.not_finite}, out, codings);
  return out;
}

bool write_sums_on_device(const Exec& exec, const Part& part, const Outcome& outcome) {
  Workspace& scratch = *exec.device_workspace;
  const Workspace::Scope host_scope(*exec.workspace), scope(scratch);
  const auto not_finite = kernels::take_zeros<std::uint32_t>(exec, 1);
  const auto terms = exec.workspace->take<Term>(outcome.messages.size());
  std::size_t lists = 0;
  for (std::uint32_t owner = 0; owner < terms.size(); ++owner) {
    Term list = term(outcome.messages[owner]);
    // As much whatever was kept.
    const std::uint64_t most = part.any_k ? part.partition.local_count(owner) : list.size();
    if (!list.is_list() && !part.any_k) continue;
    const auto position = scratch.take<std::uint32_t>(most);
    if (!list.is_list()) continue;
    const auto positions = position.first(list.index.size());
    kernels::positions_of(exec, part.partition, owner, list.index, positions);
    list.index = positions;
    terms[lists++] = list;
  }
  if (lists > 0) {
    const auto placed = kernels::place_terms_to_sum(exec, terms.first(lists));
    for (const Piece& piece : part.pieces) {
      kernels::ordered_sum(exec, {.terms = placed,
                                  .begin = piece.base,
                                  .sum = piece.elements,
                                  .factor = outcome.factor,
                                  .not_finite = not_finite.data()});
    }
  }
  const auto elements = place_elements(exec, part);
  for (std::uint32_t owner = 0; owner < outcome.messages.size(); ++owner) {
    const kernels::Term values = term(outcome.messages[owner]);
    if (values.is_list()) continue;
    kernels::write_owned(
        exec, {.partition = part.partition, .owner = owner, .pieces = elements, .values = values},
        outcome.factor, not_finite.data());
  }
  std::uint32_t answer = 0;
  kernels::read(exec, std::as_writable_bytes(std::span(&answer, 1)), std::as_bytes(not_finite));
  return answer == 0;
}

}  // namespace winnow::compress
