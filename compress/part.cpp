// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/part.hpp"

#include <algorithm>

#include "kernels/feedback.hpp"
#include "kernels/memory_ops.hpp"
#include "kernels/ordered_sum.hpp"
#include "kernels/split.hpp"

namespace winnow::compress {
namespace {

using kernels::OwnedJob;
using kernels::Placed;
using kernels::PlacedSpan;

/// A message with indices, its local numbers turned into positions.
kernels::SparseView to_positions(const Exec& exec, const Part& part, std::uint32_t owner,
                                 const MessageView& message) {
  if (part.partition.owners() == 1) return {message.index, message.value};
  const auto position = exec.workspace->take<std::uint32_t>(message.index.size());
  kernels::positions_of(exec, part.partition, owner, message.index, position);
  return {position, message.value};
}

/// Takes no memory on the host, so that putting back cannot fail for want of it: the list is the
/// part's own, and good until the next one is made.
template <class Elements>
Placed<PlacedSpan> place(const Exec& exec, const Part& part, const Elements& elements_of) {
  std::span<PlacedSpan> spans;
  if (exec.place == Place::cuda) {
    spans = exec.workspace->take<PlacedSpan>(part.pieces.size());
  } else {
    part.places.resize(part.pieces.size());
    spans = part.places;
  }
  std::ranges::transform(part.pieces, spans.begin(), [&](const Piece& piece) {
    return PlacedSpan{elements_of(piece), piece.base};
  });
  return kernels::place(exec, std::span<const PlacedSpan>(spans));
}

/// elements = the sum of terms by position, times `factor`, in all pieces. Where `is_zero`, the
/// elements are zero before. Returns whether all sums are finite.
bool add_terms(const Exec& exec, const Part& part, std::span<const kernels::Term> terms,
               float factor, bool is_zero) {
  std::uint32_t not_finite = 0;
  for (const Piece& piece : part.pieces) {
    kernels::ordered_sum(exec, {.terms = {terms},
                                .begin = piece.base,
                                .sum = piece.elements,
                                .factor = factor,
                                .not_finite = &not_finite,
                                .sum_is_zero = is_zero});
  }
  return not_finite == 0;
}

}  // namespace

Placed<PlacedSpan> place_elements(const Exec& exec, const Part& part) {
  return place(exec, part, [](const Piece& piece) { return piece.elements; });
}

Placed<PlacedSpan> place_residuals(const Exec& exec, const Part& part) {
  return place(exec, part, [](const Piece& piece) { return piece.residual(); });
}

bool add_messages(const Exec& exec, const Part& part, std::span<const MessageView> messages,
                  float factor) {
  if (messages.empty() || part.count == 0) return true;
  const Workspace::Scope scope(*exec.workspace);
  const auto terms = exec.workspace->take<kernels::Term>(messages.size());
  std::ranges::transform(messages, terms.begin(), term);
  const bool is_zero = !std::ranges::all_of(messages, &MessageView::carries_all);
  return add_terms(exec, part, terms, factor, is_zero);
}

bool write_sums(const Exec& exec, const Part& part, std::span<const MessageView> sums,
                float factor) {
  const Workspace::Scope scope(*exec.workspace);
  const auto terms = exec.workspace->take<kernels::Term>(sums.size());
  std::size_t lists = 0;
  for (std::uint32_t owner = 0; owner < sums.size(); ++owner) {
    if (sums[owner].carries_all()) continue;
    const kernels::SparseView list = to_positions(exec, part, owner, sums[owner]);
    terms[lists++] = {.index = list.index, .value = list.value};
  }
  // Lists first: a sum of them may also write where they name nothing.
  const bool finite =
      lists == 0 || add_terms(exec, part, terms.first(lists), factor, /*is_zero=*/true);
  const auto elements = place_elements(exec, part);
  std::uint32_t not_finite = 0;
  for (std::uint32_t owner = 0; owner < sums.size(); ++owner) {
    if (!sums[owner].carries_all()) continue;
    kernels::write_owned(exec,
                         {.partition = part.partition,
                          .owner = owner,
                          .pieces = elements,
                          .values = term(sums[owner])},
                         factor, &not_finite);
  }
  return finite && not_finite == 0;
}

void put_back(const Exec& exec, const Part& part, std::uint32_t owner,
              const kernels::Term& values) {
  const Workspace::Scope host_scope(*exec.workspace), scope(kernels::scratch_of(exec));
  kernels::add_owned(exec, {.partition = part.partition,
                            .owner = owner,
                            .pieces = place_residuals(exec, part),
                            .values = values});
}

kernels::PlaceArray<Bounds> make_bounds(const Exec& exec, std::span<PieceState> pieces) {
  kernels::PlaceArray<Bounds> bounds(exec, pieces.size());
  for (std::size_t i = 0; i < pieces.size(); ++i) pieces[i].bounds = &bounds.span()[i];
  return bounds;
}

void make_residual(const Exec& exec, const Piece& piece) {
  ParameterState& parameter = *piece.parameter;
  if (!parameter.residual.empty()) return;
  parameter.bounds = make_bounds(exec, parameter.pieces);
  parameter.residual = kernels::PlaceArray<float>(exec, parameter.count, parameter.residual_memory);
}

void keep(const Exec& exec, const Piece& piece, float decay) {
  make_residual(exec, piece);
  kernels::feedback_keep(exec, piece.residual(), piece.elements, decay);
  piece.state->soil();
}

OwnedJob taken_job(const Exec& exec, const Part& part, const Taken& taken) {
  return {.partition = part.partition,
          .owner = taken.owner,
          .pieces = place_residuals(exec, part),
          .values = {.index = taken.index, .value = taken.value}};
}

void put(const Exec& exec, const Part& part, const Taken& taken) {
  const Workspace::Scope host_scope(*exec.workspace), scope(kernels::scratch_of(exec));
  kernels::store_owned(exec, taken_job(exec, part, taken));
  kernels::wait(exec);
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

void keep_left(const Exec& exec, const Part& part, const Owned& owned) {
  const auto& [acc, left, listed, results, touched, chosen, device] = owned;
  if (left.empty() && touched.index.empty() && chosen.index.empty()) return;
  const Workspace::Scope host_scope(*exec.workspace), scope(kernels::scratch_of(exec));
  const bool is_placed = !device.residuals.host.empty();
  OwnedJob job{.partition = part.partition,
               .owner = part.self,
               .pieces = is_placed ? device.residuals : place_residuals(exec, part)};
  const auto store = [&](const kernels::Term& values, const std::uint64_t* count = nullptr) {
    job.values = values;
    job.count = count;
    kernels::store_owned(exec, job);
  };
  store({.value = left});
  if (device.touched_counts.empty()) {
    store({.index = touched.index, .value = touched.value});
  } else {
    std::size_t end = 0;
    for (std::size_t i = 0; i < listed.size(); ++i) {
      if (part.pieces[i].own_k == 0) continue;
      const std::uint64_t room = listed[i].most;
      store({.index = touched.index.subspan(end, room), .value = touched.value.subspan(end, room)},
            &device.touched_counts[i]);
      end += room;
    }
  }
  store({.index = chosen.index, .value = chosen.value});
}

void put_back_own(const Exec& exec, const Part& part, const Owned& owned) {
  if (owned.acc.empty()) return;  // acc is in the residuals
  const Workspace::Scope host_scope(*exec.workspace), scope(kernels::scratch_of(exec));
  const bool is_placed = !owned.device.residuals.host.empty();
  kernels::store_owned(exec,
                       {.partition = part.partition,
                        .owner = part.self,
                        .pieces = is_placed ? owned.device.residuals : place_residuals(exec, part),
                        .values = {.value = owned.acc}});
}

}  // namespace winnow::compress
