// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>
#include <winnow/exec.hpp>

#include "compress/message.hpp"
#include "kernels/feedback_select.hpp"
#include "kernels/host_memory.hpp"

namespace winnow::compress {

/// What a piece carries from step to step beside its residual.
struct PieceState {
  kernels::SelectBound bound;
  bool dirty = false;  ///< the residual may hold something
};

/// What a rank carries from step to step for one parameter.
struct ParameterState {
  std::uint64_t count = 0;
  kernels::HostArray<float> residual;  ///< allocated when first needed
  std::vector<PieceState> pieces;
};

/// A stretch of one parameter inside a part: views.
struct Piece {
  std::span<float> elements;
  ParameterState* parameter = nullptr;
  PieceState* state = nullptr;
  std::uint64_t offset = 0;  ///< place in the parameter of elements[0]
  std::uint32_t base = 0;    ///< position in the part of elements[0]
  std::uint32_t k = 0;       ///< elements to keep

  /// Empty where the parameter has none yet.
  std::span<float> residual() const {
    return parameter->residual.empty()
               ? std::span<float>()
               : parameter->residual.span().subspan(offset, elements.size());
  }
};

/// What one message covers: below 2^32 positions. Pieces lie one after another.
struct Part {
  std::vector<Piece> pieces;
  std::uint64_t count = 0;
  std::uint64_t k = 0;
};

/// elements += messages in their order, then times `factor` once where any message wrote; elements
/// are zero before. Returns whether all sums are finite.
bool add_messages(const Exec& exec, const Part& part, std::span<const MessageView> messages,
                  float factor);

/// Takes a piece that is not sent after all: residual = acc where acc is finite, as it was
/// elsewhere. Allocates the residual where there is none. The elements stay as they are.
void keep(const Piece& piece, float decay);

/// residual += message: undoes what encode took.
void put_back(const Exec& exec, const Part& part, const MessageView& message);

}  // namespace winnow::compress
