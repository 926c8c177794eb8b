// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/schedule/rests.hpp"

#include <algorithm>

#include "comm/schedule/pipeline.hpp"
#include "kernels/exec/together.hpp"
#include "kernels/half.hpp"

namespace winnow::comm {

using compress::Piece;

kernels::RestKeeper keeper_among(int rank, int ranks, const compress::Part& part,
                                 const Schedule& schedule, float averaged) {
  if (schedule.own_support) return {.by = averaged / static_cast<float>(ranks)};
  return {.partition = {static_cast<std::uint32_t>(ranks), part.count},
          .owner = static_cast<std::uint32_t>(rank),
          .by = averaged};
}

bool is_rounded(const Piece& piece) {
  return piece.rounds_to != ElementType::float32 && piece.elements.type() == ElementType::float32;
}

void keep_rest(const Exec& exec, const Stretch& stretch, std::uint32_t* too_large) {
  const auto& [piece, keeper] = stretch;
  kernels::keep_rest(exec, {.type = piece.rounds_to,
                            .sums = piece.elements.floats(),
                            .residual = piece.residual(),
                            .base = piece.base,
                            .keeper = keeper,
                            .too_large = too_large});
}

void keep_rest(const Exchange& exchange, const Stretch& stretch) {
  const auto look = [&](std::uint32_t* too_large) { keep_rest(exchange.exec, stretch, too_large); };
  if (kernels::answer(exchange.exec, look) == 0) return;
  stretch.piece.state->mark_dirty();
  exchange.wire.stats.clipped = 1;
}

void keep_rests(const Schedule& schedule, const Exchange& exchange, const Exec& exec,
                bool reserve) {
  const std::span<const Piece> pieces = exchange.part.pieces;
  const kernels::RestKeeper keeper = keeper_of(exchange, schedule);
  kernels::CallStatus* const status = exchange.course.status;
  const bool has_halves = std::ranges::any_of(
      pieces, [](const Piece& piece) { return piece.elements.type() != ElementType::float32; });
  if (has_halves && (exchange.result.clipped || reserve || status != nullptr)) {
    exchange.compressor.keep_rests(exchange.exec, exchange.part, outcome_of(exchange),
                                   {.residuals = exchange.owned.residuals,
                                    .keeper = keeper,
                                    .too_large = status != nullptr ? &status->too_large : nullptr});
  }
  if (std::ranges::none_of(pieces, is_rounded)) return;
  count_clipped(exchange, [&](std::uint32_t* too_large) {
    kernels::together(exec, [&] {
      for (const Piece& piece : pieces) {
        if (is_rounded(piece)) keep_rest(exec, {piece, keeper}, too_large);
      }
    });
  });
}

}  // namespace winnow::comm
