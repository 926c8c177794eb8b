// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch_pieces.cuh"
#include "kernels/cuda/owned.cuh"
#include "kernels/owned.hpp"

namespace winnow::kernels::cuda {

void add_owned(const Exec& exec, const OwnedJob& job) {
  launch_piece(exec, AddOwned{make_owned_task(job), moved(job)});
}

void store_owned(const Exec& exec, const OwnedJob& job) {
  launch_piece(exec, StoreOwned{make_owned_task(job), moved(job)});
}

void write_owned(const Exec& exec, const OwnedJob& job, const OwnedWrite& sums) {
  const OwnedTask task = make_owned_task(job);
  const Rests& rests = sums.rests;
  if (rests.empty()) {
    launch_piece(exec, WriteOwned{task, moved(job), sums.factor, sums.not_finite, sums.too_large});
  } else {
    launch_piece(exec, KeepOwnedRests{task, moved(job), sums.factor, device_spans(rests.residuals),
                                      rests.keeper, rests.too_large});
  }
}

void take_owned(const Exec& exec, const OwnedJob& job, std::span<float> taken) {
  launch_piece(exec, TakeOwned{make_owned_task(job), taken.size(), taken.data()});
}

void fill_pieces(const Exec& exec, const Placed<PlacedSpan>& pieces, float value) {
  const FillPieces kernel = make_fill(pieces, value);
  if (kernel.begin == kernel.end) return;
  launch(exec, blocks_for((kernel.end - kernel.begin - 1) / FillPieces::kTile + 1), kernel);
}

}  // namespace winnow::kernels::cuda
