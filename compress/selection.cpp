// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/selection.hpp"

#include <cstdint>

namespace winnow::compress {

void select_and_seal(const Exec& exec, float decay, const Part& part, Header header,
                     std::span<std::byte> out) {
  const Workspace::Scope scope(*exec.workspace);
  const auto index = exec.workspace->take<std::uint32_t>(part.k);
  const auto value = lay_out(part.count, part.k, out).value;

  std::size_t at = 0;
  for (const Piece& piece : part.pieces) {
    const auto piece_index = index.subspan(at, piece.k);
    const auto result =
        kernels::feedback_select(exec, {piece.elements, piece.residual(), decay},
                                 piece.state->bound, piece_index, value.subspan(at, piece.k));
    if (!result.finite) header.flags |= Header::kPoison;
    for (std::uint32_t& position : piece_index) position += piece.base;
    piece.state->dirty = true;
    at += piece.k;
  }
  seal(exec, header, index, out);
}

}  // namespace winnow::compress
