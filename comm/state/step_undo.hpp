// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>
#include <winnow/exec.hpp>

#include "compress/part.hpp"
#include "kernels/exec/place_memory.hpp"

namespace winnow::comm {

/// The parameters as they were when a step began, so that it can be undone. Device memory is copied
/// and restored in the order of exec.stream.
class StepUndo {
 public:
  /// A step begins, with room for all of its parameters. The memory of the last one is used again.
  void begin() { ++step_; }
  /// Whether a step has begun.
  bool begun() const { return step_ > 0; }

  /// Takes the memory that `keep` needs. The parameter's address stays.
  void make_room(const Exec& exec, compress::ParameterState& parameter);
  /// Before a call of this step: keeps the parameter as it is, unless an earlier call has. 8 bytes
  /// for each element of a residual or a moment. Takes no memory.
  void keep(const Exec& exec, compress::ParameterState& parameter);
  /// Restores a parameter that `keep` has copied in this step; leaves others alone. Keeps its
  /// bounds, which choose work but no result.
  void restore(const Exec& exec, compress::ParameterState& parameter);
  /// Multiplies what was kept in this step.
  void scale(const Exec& exec, float factor);

 private:
  struct Kept {
    std::uint64_t step = 0;
    bool dirty = false;  ///< otherwise the residual was zero
    kernels::PlaceArray<float> residual, moment;
    std::uint64_t calls = 0, counted = 0;
    std::vector<compress::PieceState> pieces;
  };

  std::uint64_t step_ = 0;
  std::unordered_map<compress::ParameterState*, Kept> kept_;
};

}  // namespace winnow::comm
