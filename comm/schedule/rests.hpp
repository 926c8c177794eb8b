// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "comm/schedule/exchange.hpp"
#include "comm/schedule/schedule.hpp"
#include "kernels/arithmetic/rest.hpp"
#include "kernels/exec/place_memory.hpp"

namespace winnow::comm {

// Rests: the part of finite sums that elements of 16 bits cannot hold. All ranks deliver the
// largest finite element, and the rest waits in residuals for a later call. One rank keeps it, the
// owner of the position by kernels::Partition: so it competes for k once. Where all ranks send
// values at one support, which they choose in turn, each keeps an equal share, for each has to see
// it. Residuals grow by it behind all else that the call leaves there.

/// The keepers among `ranks` ranks, of whom this is `rank`, that end a part with the same sums by
/// `schedule`. `averaged`: Scaling::averaged.
kernels::RestKeeper keeper_among(int rank, int ranks, const compress::Part& part,
                                 const Schedule& schedule, float averaged);
/// The keepers among the ranks of an exchange of one level.
inline kernels::RestKeeper keeper_of(const Exchange& exchange, const Schedule& schedule) {
  return keeper_among(exchange.wire.rank, exchange.wire.ranks, exchange.part, schedule,
                      exchange.scaling.averaged);
}

/// Sums that will be rounded, in a float32 stand-in of the caller's elements.
struct Stretch {
  const compress::Piece& piece;  ///< elements are the sums, which become those that fit
  kernels::RestKeeper keeper;
};
/// Whether they are rounded at all.
bool is_rounded(const compress::Piece& piece);
/// Keeps the rests of a stretch that is_rounded. *too_large, in the memory of exec.place, becomes 1
/// if there are some, on all ranks.
void keep_rest(const Exec& exec, const Stretch& stretch, std::uint32_t* too_large);

/// Keeps them and waits for the answer. If there are some, marks the piece dirty and counts the
/// call as clipped.
void keep_rest(const Exchange& exchange, const Stretch& stretch);

/// Runs keep(word) with the word that keep_rest is to raise, and counts a call that raises it,
/// without a wait for a device.
template <class Keep>
void count_clipped(const Exchange& exchange, const Keep& keep) {
  if (exchange.course.too_large != nullptr) return keep(exchange.course.too_large);
  const kernels::ScratchScope scope(exchange.exec);
  std::uint32_t* const word = kernels::take_zeros<std::uint32_t>(exchange.exec, 1).data();
  keep(word);
  if (*word != 0) exchange.wire.stats.clipped = 1;
}

/// Keeps those of a compressed part whose schedule leaves the sums to write_outcome. `reserve`:
/// also takes the scratch of later calls where there are none. `exec`: the Exchange's, perhaps with
/// a condition.
void keep_rests(const Schedule& schedule, const Exchange& exchange, const Exec& exec, bool reserve);

}  // namespace winnow::comm
