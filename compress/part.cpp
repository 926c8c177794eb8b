// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/part.hpp"

#include <algorithm>
#include <string>

#include "kernels/exec/together.hpp"
#include "kernels/feedback.hpp"
#include "kernels/memory_ops.hpp"

namespace winnow::compress {

using kernels::OwnedJob;
using kernels::Placed;
using kernels::PlacedSpan;

namespace {

/// A job on residuals at positions of Part::self.
OwnedJob own_job(const Part& part, const Owned& owned, const kernels::Term& values) {
  return {
      .partition = part.partition, .owner = part.self, .pieces = owned.residuals, .values = values};
}

}  // namespace

std::string label_of(std::uint64_t id, std::string_view name) {
  const std::string number = std::to_string(id);
  if (name.empty()) return "parameter " + number;
  return std::string("parameter '").append(name) + "' (id " + number + ")";
}

Placed<PlacedSpan> place_elements(const Exec& exec, const Part& part) {
  const auto spans = exec.workspace->take<PlacedSpan>(part.pieces.size());
  std::ranges::transform(part.pieces, spans.begin(), [](const Piece& piece) {
    return PlacedSpan{piece.elements, piece.base};
  });
  return kernels::place(exec, std::span<const PlacedSpan>(spans));
}

void place_pieces(const Exec& exec, const Part& part, Owned& owned) {
  const std::size_t pieces = part.pieces.size();
  const auto spans = exec.workspace->take<PlacedSpan>(2 * pieces);
  for (std::size_t i = 0; i < pieces; ++i) {
    const Piece& piece = part.pieces[i];
    spans[i] = {piece.residual(), piece.base};
    spans[pieces + i] = {piece.elements, piece.base};
  }
  const std::span<const PlacedSpan> both = spans;
  if (pieces == 1) {
    owned.residuals = kernels::place(exec, both.first(1));
    owned.elements = kernels::place(exec, both.last(1));
    return;
  }
  const auto placed = kernels::place(exec, both);
  owned.residuals = placed.subspan(0, pieces);
  owned.elements = placed.subspan(pieces, pieces);
}

kernels::PlaceArray<Bounds> make_bounds(const Exec& exec, std::span<PieceState> pieces) {
  kernels::PlaceArray<Bounds> bounds(exec, pieces.size());
  for (std::size_t i = 0; i < pieces.size(); ++i) pieces[i].bounds = &bounds.span()[i];
  return bounds;
}

void make_residual(const Exec& exec, ParameterState& parameter) {
  if (!parameter.residual.empty()) return;
  parameter.bounds = make_bounds(exec, parameter.pieces);
  parameter.residual = kernels::PlaceArray<float>(exec, parameter.count, parameter.residual_memory);
}

void keep(const Exec& exec, std::span<const Piece> pieces, float decay) {
  for (const Piece& piece : pieces) make_residual(exec, *piece.parameter);
  kernels::together(exec, [&] {
    for (const Piece& piece : pieces) {
      kernels::feedback_keep(exec, piece.residual(), piece.elements, decay, piece.precondition);
      piece.state->mark_dirty();
    }
  });
}

void restore(const Exec& exec, const Part& part, const Owned& owned, std::uint32_t owner,
             const MessageView& message) {
  kernels::add_owned(exec, {.partition = part.partition,
                            .owner = owner,
                            .pieces = owned.residuals,
                            .values = message.term});
}

void restore(const Exec& exec, const Part& part, const Owned& owned, const Chosen& chosen) {
  kernels::add_owned(exec, {.partition = kernels::Partition(1, part.count),
                            .owner = 0,
                            .pieces = owned.residuals,
                            .values = {.index = chosen.list.index, .value = chosen.list.value}});
}

void restore_own(const Exec& exec, const Part& part, const Owned& owned) {
  const auto* const own = std::get_if<OwnedAcc>(&owned.sums);
  if (own == nullptr) return;  // acc is in the residuals
  kernels::store_owned(exec, own_job(part, owned, {.index = own->index, .value = own->acc}));
}

OwnedJob taken_job(const Part& part, const Owned& owned, const Taken& taken) {
  return {.partition = part.partition,
          .owner = taken.owner,
          .pieces = owned.residuals,
          .values = {.index = taken.index, .value = taken.value}};
}

void put(const Exec& exec, const Part& part, const Owned& owned, const Taken& taken) {
  kernels::store_owned(exec, taken_job(part, owned, taken));
}

void store_own_remainder(const Exec& exec, const Part& part, const Owned& owned) {
  const auto* const lists = std::get_if<OwnedLists>(&owned.sums);
  if (lists != nullptr && !lists->touched_runs.host.empty()) {
    const auto& [index, value] = lists->touched;
    OwnedJob job = own_job(part, owned, {.index = index, .value = value});
    job.runs = lists->touched_runs;
    kernels::store_owned(exec, job);
  }
  if (owned.left.size() == 0) return;
  kernels::store_owned(exec, own_job(part, owned, owned.left));
}

void clear_own_gaps(const Exec& exec, const Part& part, std::span<float> local) {
  std::uint64_t end = 0;
  for (const Piece& piece : part.pieces) {
    if (piece.own_count == 0) continue;
    kernels::fill(exec, local.subspan(end, piece.own_begin - end), 0);
    end = piece.own_begin + piece.own_count;
  }
  kernels::fill(exec, local.subspan(end), 0);
}

}  // namespace winnow::compress
