// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/candidates.hpp"
#include "kernels/feedback_select.hpp"

namespace winnow::kernels::cpu {

/// The source of acc for a pass.
enum class Pass {
  first,     ///< gradient + decay * residual
  repeated,  ///< in the residual, with marks in the gradient
  plain,     ///< in the residual; there is no gradient, and all is finite
};

/// The input of a pass.
struct Stream {
  Elements gradient;
  float* residual;
  float decay;
  float bound;
  std::size_t k;
  Pass pass;
  OwnUnits own;
  Precondition precondition;  ///< of the gradient in the first pass
  SideKey side = Side::both;  ///< the elements that can reach the bound
};

/// One thread's list of own elements.
struct OwnList {
  std::uint32_t* index;
  float* value;
  std::size_t room;
  std::size_t size;  ///< how many there are; those beyond `room` are not written
};

/// Walks [begin, end) once, in SIMD: acc goes into the residual; what reaches the bound moves on
/// into `out`, leaving 0, and own units' into `list`. Where acc is not finite the residual stays,
/// and a mark in the gradient, which is not zero there; false then. Prunes `out` as it fills up.
bool stream_range(const Stream& s, std::size_t begin, std::size_t end, Candidates& out,
                  OwnList& list);

}  // namespace winnow::kernels::cpu
