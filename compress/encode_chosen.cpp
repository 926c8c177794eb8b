// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Chosen elements on their way into messages: error feedback and selection in one pass, then
// coding.
#include <algorithm>
#include <optional>
#include <tuple>
#include <winnow/error.hpp>

#include "compress/lists.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/stopwatch.hpp"
#include "kernels/memory_ops.hpp"
#include "kernels/split.hpp"

namespace winnow::compress {

namespace {

using kernels::SelectResult;

/// Takes scratch for as much as can be chosen, but for the list.
Chosen take_chosen(const Exec& exec, const Part& part) {
  Workspace& scratch = kernels::scratch_of(exec);
  const std::uint32_t owners = part.partition.owners();
  Chosen chosen{.begin = exec.workspace->take<std::uint32_t>(owners + 1)};
  if (owners == 1) return chosen;
  chosen.device_begin = scratch.take<std::uint32_t>(owners + 1);
  std::tie(chosen.local, chosen.value) = scratch.take<std::uint32_t, float>(part.k);
  return chosen;
}

void sort_by_owner(const Exec& exec, const Part& part, const List& list, Chosen& chosen) {
  const std::size_t size = list.index.size();
  chosen.list = {list.index, list.value};
  if (part.partition.owners() == 1) {
    chosen.begin[0] = 0;
    chosen.begin[1] = static_cast<std::uint32_t>(size);
    chosen.local = list.index;
    chosen.value = list.value;
  } else if (size == 0) {
    kernels::zero(exec, std::as_writable_bytes(chosen.device_begin));
  } else {
    kernels::split_by_owner(exec, {.list = chosen.list,
                                   .partition = part.partition,
                                   .local = chosen.local.first(size),
                                   .value = chosen.value.first(size),
                                   .begin = chosen.device_begin,
                                   .self = part.self});
  }
}

std::span<kernels::OwnedSums> take_own_lists(const Exec& exec, const Compressor& compressor,
                                             const Part& part) {
  const auto lists = exec.workspace->take<kernels::OwnedSums>(part.pieces.size());
  std::ranges::transform(part.pieces, lists.begin(), [&](const Piece& piece) {
    // No rank keeps more of a piece than it would if it owned nothing of it.
    const std::uint64_t most = part.partition.owners() * compressor.kept(piece.elements.size());
    return take_own_list(exec, part, piece, list_room(piece.own_count, piece.own_k), most);
  });
  return lists;
}

/// Takes what the end of the call needs.
void take_owned_lists(const Exec& exec, const Compressor& compressor, const Part& part,
                      Owned& owned) {
  Workspace& scratch = kernels::scratch_of(exec);
  owned.results = scratch.take<SelectResult>(2 * part.pieces.size());
  if (part.self == Part::kNobody) return;
  const auto listed = take_own_lists(exec, compressor, part);
  owned.sums = OwnedLists{.listed = listed,
                          .touched_counts = scratch.take<std::uint64_t>(part.pieces.size())};
}

/// The passes over the pieces, which choose the list.
std::span<const AccumulateJob> take_accumulate_jobs(const Exec& exec, const Compressor& compressor,
                                                    const EncodeJob& job, const Owned& owned,
                                                    const List& list) {
  const Part& part = job.part;
  const kernels::Side side = compressor.one_sign() ? part.side_of_call() : kernels::Side::both;
  const auto jobs = exec.workspace->take<AccumulateJob>(part.pieces.size());
  const auto* const own = std::get_if<OwnedLists>(&owned.sums);
  std::size_t at = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const Piece& piece = part.pieces[i];
    const List room = list.of_piece(piece.k, at);
    jobs[i] = {.argument = compressor.argument(),
               .spans = {piece.elements, piece.residual(), job.decay},
               .base = piece.base,
               .index = room.index,
               .value = room.value,
               .kept = room.size,
               .bounds = piece.state->bounds,
               .result = &owned.results[i],
               .side = side};
    jobs[i].spans.precondition = piece.precondition;
    if (own != nullptr && piece.own_count > 0) jobs[i].spans.own = own->listed[i].own;
  }
  return jobs;
}

Chosen choose_elements(const Exec& exec, const Compressor& compressor, const EncodeJob& job,
                       EncodeResult& out) {
  const Part& part = job.part;
  const Chooses& how = *compressor.chooses();
  std::span<float> in_place;
  if (part.self == Part::kNobody && compressor.codings().exact() && !how.variable_k) {
    const Shape& shape = part.shapes.gradients.front();
    auto& message = out.messages.front();
    message = message.first(shape.bytes());
    in_place = lay_out(shape, message).floats(part.k);
  }
  List list = take_list(exec, part.k, how.variable_k, in_place);
  Chosen chosen = take_chosen(exec, part);
  const auto jobs = take_accumulate_jobs(exec, compressor, job, out.owned, list);
  kernels::scratch_of(exec).reserve(part.scratch.gradients);

  how.accumulate(exec, jobs);
  shorten(exec, list);
  out.kept = list.index.size();
  const kernels::Stopwatch watch(job.encode_seconds);
  sort_by_owner(exec, part, list, chosen);
  return chosen;
}

/// `lists`: room for one to each owner.
void encode_lists(const Exec& exec, const Compressor& compressor, const EncodeJob& job,
                  const Chosen& chosen, std::span<EncodeList> lists, EncodeResult& out) {
  const Part& part = job.part;
  const Codings& codings = compressor.codings();
  const bool variable_k = compressor.variable_k();
  const auto results = out.owned.results.first(part.pieces.size());
  const kernels::Stopwatch watch(job.encode_seconds);
  for (std::uint32_t owner = 0; owner < lists.size(); ++owner) {
    lists[owner] = {};
    if (owner == part.self) continue;
    const std::size_t begin = chosen.begin[owner], size = chosen.begin[owner + 1] - begin;
    EncodeList& list = lists[owner] = {.header = part.of_owner(job.header, owner),
                                       .shape = {},
                                       .random = job.key_of(owner),
                                       .index = chosen.local.subspan(begin, size),
                                       .value = chosen.value.subspan(begin, size),
                                       .poison = {.results = results},
                                       .status = job.status};
    list.header.k = size;
    if (variable_k) {
      store_message(out, owner, encode_variable(exec, codings, list, out.messages[owner]));
      if (!codings.exact()) keep_missed(exec, part, out.owned, list);
    } else {
      list.shape = part.self == Part::kNobody ? part.shapes.gradients.front()
                                              : shape_of(list.header.count, size, codings);
    }
  }
  if (!variable_k) encode_together(exec, codings, job, lists, out);
}

}  // namespace

void Compressor::encode(const Exec& exec, const Chooses&, const EncodeJob& job,
                        EncodeResult& out) const {
  take_owned_lists(exec, *this, job.part, out.owned);
  std::optional<kernels::ScratchScope> scope;
  if (!out.leaves_views()) scope.emplace(exec);  // which are of lists
  const auto lists = exec.workspace->take<EncodeList>(job.part.partition.owners());
  const Chosen chosen = choose_elements(exec, *this, job, out);
  if (job.part.partition.owners() > 1) {
    const kernels::Stopwatch watch(job.encode_seconds);
    kernels::read(exec, std::as_writable_bytes(chosen.begin), std::as_bytes(chosen.device_begin));
  }
  encode_lists(exec, *this, job, chosen, lists, out);
}

Chosen Compressor::choose(const Exec& exec, const EncodeJob& job, EncodeResult& out) const {
  WINNOW_EXPECTS(!knows_support(), name() + " leaves nothing to choose");
  for (const Piece& piece : job.part.pieces) piece.state->mark_dirty();
  place_pieces(exec, job.part, out.owned);
  take_owned_lists(exec, *this, job.part, out.owned);
  return choose_elements(exec, *this, job, out);
}

void Compressor::encode_chosen(const Exec& exec, const EncodeJob& job, const Chosen& chosen,
                               EncodeResult& out) const {
  const auto lists = exec.workspace->take<EncodeList>(job.part.partition.owners());
  encode_lists(exec, *this, job, chosen, lists, out);
}

}  // namespace winnow::compress
