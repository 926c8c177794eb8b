// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/state/step_undo.hpp"

#include <algorithm>

#include "kernels/elementwise.hpp"
#include "kernels/memory_ops.hpp"

namespace winnow::comm {

using compress::ParameterState;
using compress::PieceState;

void StepUndo::make_room(const Exec& exec, ParameterState& parameter) {
  Kept& kept = kept_[&parameter];
  kept.pieces.reserve(parameter.pieces.size());
  const auto make = [&](kernels::PlaceArray<float>& room, std::size_t count) {
    if (room.size() != count) room = {exec, count, parameter.residual_memory};
  };
  make(kept.residual, parameter.residual.size());
  make(kept.moment, parameter.moment.size());
}

void StepUndo::keep(const Exec& exec, ParameterState& parameter) {
  Kept& kept = kept_.at(&parameter);
  if (kept.step == step_) return;
  kept.pieces = parameter.pieces;
  kept.dirty = std::ranges::any_of(parameter.pieces, &PieceState::dirty);
  kept.calls = parameter.calls;
  kept.counted = parameter.counted;
  if (kept.dirty) kernels::copy(exec, kept.residual.span(), parameter.residual.span());
  if (kept.counted > 0) kernels::copy(exec, kept.moment.span(), parameter.moment.span());
  kept.step = step_;
}

void StepUndo::restore(const Exec& exec, ParameterState& parameter) {
  const auto found = kept_.find(&parameter);
  if (found == kept_.end() || found->second.step != step_) return;
  const Kept& kept = found->second;
  const auto residual = parameter.residual.span();
  if (kept.dirty) {
    kernels::copy(exec, residual, kept.residual.span());
  } else {
    kernels::zero(exec, std::as_writable_bytes(residual));
  }
  parameter.calls = kept.calls;
  parameter.counted = kept.counted;
  if (kept.counted > 0) {
    kernels::copy(exec, parameter.moment.span(), kept.moment.span());
  } else {
    kernels::zero(exec, std::as_writable_bytes(parameter.moment.span()));
  }
  for (std::size_t i = 0; i < kept.pieces.size(); ++i) {
    PieceState& piece = parameter.pieces[i];
    // Not confined: of a call on a device, whether it put anything back is known only later.
    piece = {.bounds = piece.bounds, .turn = kept.pieces[i].turn, .dirty = kept.pieces[i].dirty};
  }
}

void StepUndo::scale(const Exec& exec, float factor) {
  for (auto& [parameter, kept] : kept_) {
    if (kept.step == step_ && kept.dirty) kernels::scale(exec, kept.residual.span(), factor);
  }
}

}  // namespace winnow::comm
