// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/call/setup.hpp"
#include "comm/plan/bucket.hpp"
#include "comm/state/step_undo.hpp"

namespace winnow::comm {

/// The state that an AllReducer keeps of each parameter between calls: residuals, moments and
/// turns. Functions that work on them enqueue on a device.
class Parameters {
 public:
  explicit Parameters(const Setup& setup) : setup_(setup) {}

  /// The state of each parameter, by id.
  ParameterStates& states() { return states_; }
  const ParameterStates& states() const { return states_; }

  /// The number of residuals allocated, as of the last count.
  std::uint64_t residuals() const { return residuals_; }
  void count_residuals();

  /// After a call that put its gradients back, wherever they belong: what a residual holds may lie
  /// outside of this rank's shards.
  void expect_anywhere();

  /// See AllReducer::look_ahead.
  void look_ahead(std::uint64_t id, std::span<const float> weights, std::span<float> ahead,
                  float share) const;

  /// See AllReducer::begin_step.
  void begin_step();
  bool step_begun() const { return undo_.begun(); }
  /// Makes room for what `keep` copies of a new bucket.
  void make_room(const Bucket& bucket);
  /// Before a call of a step that has begun changes its parameters: keeps them as they were then.
  void keep(const Bucket& bucket);
  /// Restores those of the ids that the step has changed.
  void discard(std::span<const std::uint64_t> ids);

  /// See AllReducer::scale_residuals.
  void scale_residuals(float factor);

  /// All of it as bytes, and the number of calls made; see AllReducer::save.
  std::vector<std::byte> save(std::uint64_t calls) const;
  /// Takes over the states of the ranks of an earlier run; returns the calls made in it.
  std::uint64_t load(std::span<const std::span<const std::byte>> states);

 private:
  const Setup& setup_;
  ParameterStates states_;
  StepUndo undo_;  // of these
  std::uint64_t residuals_ = 0;
};

}  // namespace winnow::comm
