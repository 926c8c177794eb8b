// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// An AllReducer's state between calls: as bytes and back, as it was before a step, and scaled.
#include <algorithm>
#include <cmath>
#include <mutex>
#include <string>
#include <utility>
#include <winnow/error.hpp>

#include "comm/reducer/allreducer_impl.hpp"
#include "comm/state/saved_state.hpp"
#include "comm/transport/memory.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/exec/device_scope.hpp"
#include "kernels/exec/float_mode.hpp"
#include "kernels/exec/together.hpp"
#include "topology/words.hpp"

namespace winnow {

using comm::Bucket;
using comm::BucketPart;
using comm::SavedParameter;
using compress::ParameterState;
using compress::PieceState;

namespace {

/// Reads a residual or a moment, wherever it lies.
std::vector<float> read(const Exec& exec, const kernels::PlaceArray<float>& there) {
  std::vector<float> here(there.size());
  kernels::read(exec, std::as_writable_bytes(std::span(here)), std::as_bytes(there.span()));
  return here;
}

/// Writes it, wherever it lies; over a device through pinned memory.
void write(const Exec& exec, std::span<float> there, std::span<const float> from) {
  if (!kernels::reading_waits(exec)) {
    std::ranges::copy(from, there.begin());
    return;
  }
  constexpr std::size_t kChunk = std::size_t{1} << 20;
  const Workspace::Scope scope(*exec.pinned_workspace);
  const auto pinned = exec.pinned_workspace->take<float>(std::min(kChunk, from.size()));
  for (std::size_t at = 0; at < from.size(); at += kChunk) {
    const auto chunk = from.subspan(at, std::min(kChunk, from.size() - at));
    std::ranges::copy(chunk, pinned.begin());
    kernels::copy(exec, there.subspan(at, chunk.size()), pinned.first(chunk.size()));
    kernels::wait(exec);
  }
}

}  // namespace

void AllReducer::Impl::expect_idle(const char* caller) const {
  WINNOW_EXPECTS(queue->idle(),
                 std::string(caller) + " was called while calls are in flight; wait for them");
}

/// Before the call changes its parameters.
void AllReducer::Impl::keep_for_undo(const Bucket& bucket) {
  if (!undo.begun()) return;
  kernels::together(exec, [&] {
    for (const BucketPart& part : bucket.parts) {
      for (const compress::Piece& piece : part.part.pieces) undo.keep(exec, *piece.parameter);
    }
  });
}

std::vector<std::byte> AllReducer::save() const {
  Impl& impl = this->impl();
  impl.expect_idle("save");
  impl.synchronize();
  const std::lock_guard lock(impl.context.moving());
  const kernels::DeviceScope scope(impl.context.device());
  comm::SavedState state{.ranks = static_cast<std::uint32_t>(impl.transport->size()),
                         .rank = static_cast<std::uint32_t>(impl.transport->rank()),
                         .calls = impl.calls,
                         .parameters = {}};
  for (const auto& [id, parameter] : impl.parameters) {
    SavedParameter saved{
        .id = id, .count = parameter.count, .piece_length = parameter.piece_length};
    for (const PieceState& piece : parameter.pieces) {
      saved.pieces.push_back(
          {.turn = piece.turn, .dirty = piece.dirty ? 1U : 0U, .confined_to = piece.confined_to});
    }
    if (std::ranges::any_of(parameter.pieces, &PieceState::dirty)) {
      saved.residual = read(impl.exec, parameter.residual);
    }
    saved.calls = parameter.calls;
    saved.counted = parameter.counted;
    saved.moment = read(impl.exec, parameter.moment);
    saved.name = parameter.name;
    state.parameters.push_back(std::move(saved));
  }
  std::ranges::sort(state.parameters, {}, &SavedParameter::id);
  return comm::to_bytes(state);
}

void AllReducer::load(std::span<const std::span<const std::byte>> states) {
  Impl& impl = this->impl();
  WINNOW_EXPECTS(impl.queue->idle() && impl.calls == 0 && impl.parameters.empty(),
                 "load comes before the first call");
  const auto expect_memory = [](const void* data, std::uint64_t count, std::size_t unit) {
    const std::string wrong = comm::memory_error(data, count, unit);
    WINNOW_EXPECTS(wrong.empty(), std::string("a state to load").append(wrong));
  };
  expect_memory(states.data(), states.size(), sizeof(std::span<const std::byte>));
  for (const auto& state : states) expect_memory(state.data(), state.size(), 1);
  const std::lock_guard lock(impl.context.moving());
  const kernels::DeviceScope scope(impl.context.device());
  const kernels::FloatMode mode;
  const comm::SavedState state = comm::take_over(
      states, impl.transport->rank(), impl.transport->size(), impl.options.op == ReduceOp::average);
  comm::Parameters parameters;
  for (const SavedParameter& saved : state.parameters) {
    ParameterState& parameter = parameters[saved.id];
    parameter.count = saved.count;
    parameter.piece_length = saved.piece_length;
    parameter.residual_memory = comm::residual_memory(impl.options, impl.exec.place);
    for (const comm::SavedPiece& piece : saved.pieces) {
      parameter.pieces.push_back({.turn = static_cast<std::uint32_t>(piece.turn),
                                  .dirty = piece.dirty != 0,
                                  .confined_to = piece.confined_to});
    }
    parameter.calls = saved.calls;
    parameter.counted = saved.counted;
    parameter.name = saved.name;
    if (!saved.moment.empty()) {
      parameter.moment = {impl.exec, parameter.count, parameter.residual_memory};
      write(impl.exec, parameter.moment.span(), saved.moment);
    }
    if (saved.residual.empty()) continue;
    compress::make_residual(impl.exec, parameter);
    write(impl.exec, parameter.residual.span(), saved.residual);
  }
  impl.parameters = std::move(parameters);
  impl.calls = state.calls;
  if (impl.completions != nullptr) impl.completions->set_next(state.calls);
  impl.residuals = impl.count_residuals();
}

void AllReducer::load(std::span<const std::byte> state) {
  load(std::span(&state, 1));
}

void AllReducer::begin_step() {
  Impl& impl = this->impl();
  impl.expect_idle("begin_step");
  const std::lock_guard lock(impl.context.moving());
  const kernels::DeviceScope scope(impl.context.device());
  for (auto& [id, parameter] : impl.parameters) impl.undo.make_room(impl.exec, parameter);
  impl.undo.begin();
}

void AllReducer::discard_step() {
  Impl& impl = this->impl();
  impl.expect_idle("discard_step");
  std::vector<std::uint64_t> all;
  for (const auto& [id, parameter] : impl.parameters) all.push_back(id);
  discard_step(all);
}

void AllReducer::discard_step(std::span<const std::uint64_t> ids) {
  Impl& impl = this->impl();
  impl.expect_idle("discard_step");
  WINNOW_EXPECTS(impl.undo.begun(), "discard_step comes after begin_step");
  impl.synchronize();
  const std::lock_guard lock(impl.context.moving());
  const kernels::DeviceScope scope(impl.context.device());
  kernels::together(impl.exec, [&] {
    for (const std::uint64_t id : ids) {
      const auto known = impl.parameters.find(id);
      if (known != impl.parameters.end()) impl.undo.restore(impl.exec, known->second);
    }
  });
}

void AllReducer::scale_residuals(float factor) {
  Impl& impl = this->impl();
  impl.expect_idle("scale_residuals");
  WINNOW_EXPECTS(
      std::isfinite(factor) && factor > 0,
      "residuals are scaled by a number above 0, unlike the factor " + number_text(factor));
  impl.synchronize();
  const std::lock_guard lock(impl.context.moving());
  const kernels::DeviceScope scope(impl.context.device());
  const kernels::FloatMode mode;
  kernels::together(impl.exec, [&] {
    for (auto& [id, parameter] : impl.parameters) {
      if (std::ranges::any_of(parameter.pieces, &PieceState::dirty)) {
        kernels::scale(impl.exec, parameter.residual.span(), factor);
      }
    }
    impl.undo.scale(impl.exec, factor);
  });
}

}  // namespace winnow
