// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/call/parameters.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <winnow/error.hpp>

#include "comm/state/saved_state.hpp"
#include "comm/transport/memory.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/together.hpp"
#include "kernels/memory_ops.hpp"
#include "topology/words.hpp"

namespace winnow::comm {
namespace {

using compress::ParameterState;
using compress::PieceState;

/// Reads a residual or a moment, wherever it lies.
std::vector<float> read(const Exec& exec, const kernels::PlaceArray<float>& array) {
  std::vector<float> values(array.size());
  kernels::read(exec, std::as_writable_bytes(std::span(values)), std::as_bytes(array.span()));
  return values;
}

/// Writes it, wherever it lies; over a device through pinned memory.
void write(const Exec& exec, std::span<float> out, std::span<const float> from) {
  if (!kernels::reading_waits(exec)) {
    std::ranges::copy(from, out.begin());
    return;
  }
  constexpr std::size_t kChunk = std::size_t{1} << 20;
  const Workspace::Scope scope(*exec.pinned_workspace);
  const auto pinned = exec.pinned_workspace->take<float>(std::min(kChunk, from.size()));
  for (std::size_t at = 0; at < from.size(); at += kChunk) {
    const auto chunk = from.subspan(at, std::min(kChunk, from.size() - at));
    std::ranges::copy(chunk, pinned.begin());
    kernels::copy(exec, out.subspan(at, chunk.size()), pinned.first(chunk.size()));
    kernels::wait(exec);
  }
}

bool has_residual(const ParameterState& parameter) {
  return std::ranges::any_of(parameter.pieces, &PieceState::dirty);
}

void expect_memory(const void* data, std::uint64_t count, std::size_t unit, const char* what) {
  const std::string wrong = memory_error(data, count, unit);
  WINNOW_EXPECTS(wrong.empty(), std::string(what).append(wrong));
}

}  // namespace

void Parameters::count_residuals() {
  residuals_ = static_cast<std::uint64_t>(std::ranges::count_if(
      states_, [](const auto& entry) { return !entry.second.residual.empty(); }));
}

void Parameters::expect_anywhere() {
  for (auto& [id, parameter] : states_) {
    for (PieceState& piece : parameter.pieces) {
      if (piece.dirty) piece.mark_dirty();
    }
  }
}

void Parameters::look_ahead(std::uint64_t id, std::span<const float> weights,
                            std::span<float> ahead, float share) const {
  WINNOW_EXPECTS(std::isfinite(share) && share >= 0,
                 "the share of a residual is a number from 0 on, not " + number_text(share));
  WINNOW_EXPECTS(weights.size() == ahead.size(),
                 "look_ahead has " + std::to_string(weights.size()) + " weights and room for " +
                     std::to_string(ahead.size()));
  expect_memory(weights.data(), weights.size(), sizeof(float), "look_ahead: weights");
  expect_memory(ahead.data(), ahead.size(), sizeof(float), "look_ahead: the room for the result");
  const std::less_equal before;  // a total order, also of pointers into different arrays
  WINNOW_EXPECTS(weights.data() == ahead.data() ||
                     before(weights.data() + weights.size(), ahead.data()) ||
                     before(ahead.data() + ahead.size(), weights.data()),
                 "look_ahead needs weights and result apart, or the same memory for both");
  const Exec& exec = setup_.exec();
  WINNOW_EXPECTS(kernels::is_within_reach(exec.place, weights.data()) &&
                     kernels::is_within_reach(exec.place, ahead.data()),
                 "look_ahead needs weights and result in the memory of this AllReducer's device");
  const auto known = states_.find(id);
  WINNOW_EXPECTS(known == states_.end() || known->second.count == weights.size(),
                 compress::label_of(id, known->second.name) + " has " +
                     std::to_string(known->second.count) + " elements, not " +
                     std::to_string(weights.size()));

  if (share != 0 && known != states_.end() && !known->second.residual.empty() &&
      has_residual(known->second)) {
    kernels::look_ahead(exec, weights, known->second.residual.span(), share, ahead);
  } else if (weights.data() != ahead.data()) {
    kernels::copy(exec, ahead, weights);
  }
}

void Parameters::begin_step() {
  for (auto& [id, parameter] : states_) undo_.make_room(setup_.exec(), parameter);
  undo_.begin();
}

void Parameters::make_room(const Bucket& bucket) {
  if (!undo_.begun()) return;
  bucket.for_each_state(
      [&](ParameterState& parameter) { undo_.make_room(setup_.exec(), parameter); });
}

void Parameters::keep(const Bucket& bucket) {
  kernels::together(setup_.exec(), [&] {
    bucket.for_each_state([&](ParameterState& parameter) { undo_.keep(setup_.exec(), parameter); });
  });
}

void Parameters::discard(std::span<const std::uint64_t> ids) {
  kernels::together(setup_.exec(), [&] {
    for (const std::uint64_t id : ids) {
      const auto known = states_.find(id);
      if (known != states_.end()) undo_.restore(setup_.exec(), known->second);
    }
  });
}

void Parameters::scale_residuals(float factor) {
  kernels::together(setup_.exec(), [&] {
    for (auto& [id, parameter] : states_) {
      if (!has_residual(parameter)) continue;
      kernels::scale(setup_.exec(), parameter.residual.span(), factor);
    }
    undo_.scale(setup_.exec(), factor);
  });
}

std::vector<std::byte> Parameters::save(std::uint64_t calls) const {
  const Exec& exec = setup_.exec();
  SavedState state{.ranks = static_cast<std::uint32_t>(setup_.transport().size()),
                   .rank = static_cast<std::uint32_t>(setup_.transport().rank()),
                   .calls = calls,
                   .parameters = {}};
  for (const auto& [id, parameter] : states_) {
    SavedParameter saved{
        .id = id, .count = parameter.count, .piece_length = parameter.piece_length};
    for (const PieceState& piece : parameter.pieces) {
      saved.pieces.push_back({.turn = piece.turn,
                              .dirty = piece.dirty ? 1U : 0U,
                              .owned_by_plan = piece.owned_by_plan});
    }
    if (has_residual(parameter)) saved.residual = read(exec, parameter.residual);
    saved.calls = parameter.calls;
    saved.counted = parameter.counted;
    saved.moment = read(exec, parameter.moment);
    saved.name = parameter.name;
    state.parameters.push_back(std::move(saved));
  }
  std::ranges::sort(state.parameters, {}, &SavedParameter::id);
  return to_bytes(state);
}

std::uint64_t Parameters::load(std::span<const std::span<const std::byte>> states) {
  constexpr const char* kWhat = "a state to load";
  expect_memory(states.data(), states.size(), sizeof(std::span<const std::byte>), kWhat);
  for (const auto& state : states) expect_memory(state.data(), state.size(), 1, kWhat);
  const Exec& exec = setup_.exec();
  const SavedState state = take_over(states, setup_.transport().rank(), setup_.transport().size(),
                                     setup_.options.op == ReduceOp::average);
  ParameterStates loaded;
  for (const SavedParameter& saved : state.parameters) {
    ParameterState& parameter = loaded[saved.id];
    parameter.count = saved.count;
    parameter.piece_length = saved.piece_length;
    parameter.residual_memory = residual_memory(setup_.options, exec.place);
    for (const SavedPiece& piece : saved.pieces) {
      parameter.pieces.push_back({.turn = static_cast<std::uint32_t>(piece.turn),
                                  .dirty = piece.dirty != 0,
                                  .owned_by_plan = piece.owned_by_plan});
    }
    parameter.calls = saved.calls;
    parameter.counted = saved.counted;
    parameter.name = saved.name;
    if (!saved.moment.empty()) {
      parameter.moment = {exec, parameter.count, parameter.residual_memory};
      write(exec, parameter.moment.span(), saved.moment);
    }
    if (saved.residual.empty()) continue;
    compress::make_residual(exec, parameter);
    write(exec, parameter.residual.span(), saved.residual);
  }
  states_ = std::move(loaded);
  count_residuals();
  return state.calls;
}

}  // namespace winnow::comm
