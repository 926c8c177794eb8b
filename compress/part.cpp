// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/part.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/add_to.hpp"
#include "kernels/arithmetic.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/residual_add.hpp"

namespace winnow::compress {
namespace {

/// The entries of a message that lie in a piece.
kernels::SparseView slice(const MessageView& message, const Piece& piece) {
  const auto begin = std::ranges::lower_bound(message.index, piece.base);
  // The last piece may end at 2^32 - 1 positions: compare in 64 bits.
  const std::uint64_t end = std::uint64_t{piece.base} + piece.elements.size();
  const auto last = std::lower_bound(
      begin, message.index.end(), end,
      [](std::uint32_t position, std::uint64_t bound) { return position < bound; });
  const auto first = static_cast<std::size_t>(begin - message.index.begin());
  const auto size = static_cast<std::size_t>(last - begin);
  return {message.index.subspan(first, size), message.value.subspan(first, size)};
}

/// Whether a message carries every position, so that it has no indices.
bool carries_all(const MessageView& message) {
  return message.header.k == message.header.count;
}

}  // namespace

bool add_messages(const Exec& exec, const Part& part, std::span<const MessageView> messages,
                  float factor) {
  if (messages.empty() || part.count == 0) return true;
  const Workspace::Scope scope(*exec.workspace);
  const auto lists = exec.workspace->take<kernels::SparseView>(messages.size());
  // (count, k) are the same on all ranks, so either all messages carry every position or none.
  const bool dense = carries_all(messages.front());
  bool finite = true;
  for (const Piece& piece : part.pieces) {
    if (dense) {
      for (const MessageView& message : messages) {
        kernels::residual_add(exec, piece.elements,
                              message.value.subspan(piece.base, piece.elements.size()));
      }
      if (factor != 1) kernels::scale(exec, piece.elements, factor);
      finite = kernels::all_finite(exec, piece.elements) && finite;
    } else {
      for (std::size_t i = 0; i < messages.size(); ++i) lists[i] = slice(messages[i], piece);
      finite = kernels::add_to(exec, piece.elements, piece.base, lists, factor) && finite;
    }
  }
  return finite;
}

void put_back(const Exec& exec, const Part& part, const MessageView& message) {
  for (const Piece& piece : part.pieces) {
    if (carries_all(message)) {
      kernels::residual_add(exec, piece.residual(),
                            message.value.subspan(piece.base, piece.elements.size()));
    } else {
      kernels::put_back(exec, piece.residual(), piece.base, slice(message, piece));
    }
  }
}

void keep(const Piece& piece, float decay) {
  ParameterState& parameter = *piece.parameter;
  if (parameter.residual.empty()) {
    parameter.residual = kernels::HostArray<float>(parameter.count);
  }
  const auto residual = piece.residual();
  for (std::size_t i = 0; i < residual.size(); ++i) {
    const float acc = kernels::feedback(piece.elements[i], decay, residual[i]);
    if (std::isfinite(acc)) residual[i] = acc;
  }
  piece.state->dirty = true;
}

}  // namespace winnow::compress
