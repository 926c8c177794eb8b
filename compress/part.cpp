// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/part.hpp"

#include <algorithm>

#include "kernels/add_to.hpp"
#include "kernels/feedback.hpp"
#include "kernels/memory_ops.hpp"
#include "kernels/ordered_sum.hpp"
#include "kernels/split.hpp"

namespace winnow::compress {
namespace {

using kernels::OwnedJob;
using kernels::Placed;
using kernels::PlacedSpan;

/// The entries of a list that lie in a piece; indices are positions of the part.
kernels::SparseView slice(const kernels::SparseView& list, const Piece& piece) {
  const auto begin = std::ranges::lower_bound(list.index, piece.base);
  // The last piece may end at 2^32 - 1 positions: compare in 64 bits.
  const std::uint64_t end = std::uint64_t{piece.base} + piece.elements.size();
  const auto last = std::lower_bound(
      begin, list.index.end(), end,
      [](std::uint32_t position, std::uint64_t bound) { return position < bound; });
  const auto first = static_cast<std::size_t>(begin - list.index.begin());
  const auto size = static_cast<std::size_t>(last - begin);
  return {list.index.subspan(first, size), list.value.subspan(first, size)};
}

/// A message with indices, its local numbers turned into positions.
kernels::SparseView to_positions(const Exec& exec, const Part& part, std::uint32_t owner,
                                 const MessageView& message) {
  if (part.partition.owners() == 1) return {message.index, message.value};
  const auto position = exec.workspace->take<std::uint32_t>(message.index.size());
  kernels::positions_of(exec, part.partition, owner, message.index, position);
  return {position, message.value};
}

template <class Elements>
Placed<PlacedSpan> place(const Exec& exec, const Part& part, const Elements& elements_of) {
  const auto spans = exec.workspace->take<PlacedSpan>(part.pieces.size());
  std::ranges::transform(part.pieces, spans.begin(), [&](const Piece& piece) {
    return PlacedSpan{elements_of(piece), piece.base};
  });
  return kernels::place(exec, std::span<const PlacedSpan>(spans));
}

/// Adds lists of chosen elements to all pieces.
bool add_lists(const Exec& exec, const Part& part, std::span<const kernels::SparseView> lists,
               float factor) {
  const auto slices = exec.workspace->take<kernels::SparseView>(lists.size());
  bool finite = true;
  for (const Piece& piece : part.pieces) {
    for (std::size_t i = 0; i < lists.size(); ++i) slices[i] = slice(lists[i], piece);
    finite = kernels::add_to(exec, piece.elements, piece.base, slices, factor) && finite;
  }
  return finite;
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
  if (std::ranges::none_of(messages, &MessageView::carries_all)) {
    const auto lists = exec.workspace->take<kernels::SparseView>(messages.size());
    for (std::size_t i = 0; i < messages.size(); ++i) {
      lists[i] = {messages[i].index, messages[i].value};
    }
    return add_lists(exec, part, lists, factor);
  }
  const auto terms = exec.workspace->take<kernels::Term>(messages.size());
  for (std::size_t i = 0; i < messages.size(); ++i) terms[i] = term(messages[i]);
  bool finite = true;
  for (const Piece& piece : part.pieces) {
    finite = kernels::ordered_sum(exec, terms, piece.base, piece.elements, factor) && finite;
  }
  return finite;
}

bool write_sums(const Exec& exec, const Part& part, std::span<const MessageView> sums,
                float factor) {
  const Workspace::Scope scope(*exec.workspace);
  const auto lists = exec.workspace->take<kernels::SparseView>(sums.size());
  const auto elements = place_elements(exec, part);
  std::uint32_t not_finite = 0;
  for (std::uint32_t owner = 0; owner < sums.size(); ++owner) {
    lists[owner] = {};
    if (!sums[owner].carries_all()) {
      lists[owner] = to_positions(exec, part, owner, sums[owner]);
      continue;
    }
    kernels::write_owned(exec,
                         {.partition = part.partition,
                          .owner = owner,
                          .pieces = elements,
                          .values = term(sums[owner])},
                         factor, &not_finite);
  }
  return add_lists(exec, part, lists, factor) && not_finite == 0;
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
  const auto& [acc, left, listed, touched, chosen, device] = owned;
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
