// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/owned.cuh"
#include "kernels/owned.hpp"

namespace winnow::kernels::cuda {

namespace {

template <class Kernel>
void launch_owned(const Exec& exec, const OwnedTask& task) {
  if (task.values.count == 0 || task.piece_count == 0) return;
  launch<Kernel>(exec, blocks_of(task.values.count), {task});
}

}  // namespace

void add_owned(const Exec& exec, const OwnedJob& job) {
  launch_owned<AddOwned>(exec, make_owned_task(job));
}

void store_owned(const Exec& exec, const OwnedJob& job) {
  launch_owned<StoreOwned>(exec, make_owned_task(job));
}

void write_owned(const Exec& exec, const OwnedJob& job, float factor, std::uint32_t* not_finite) {
  OwnedTask task = make_owned_task(job);
  task.factor = factor;
  task.not_finite = not_finite;
  launch_owned<WriteOwned>(exec, task);
}

void take_owned(const Exec& exec, const OwnedJob& job, std::span<float> taken) {
  if (taken.empty()) return;
  launch<TakeOwned>(exec, blocks_of(taken.size()), {make_owned_task(job), taken.data()});
}

void fill_pieces(const Exec& exec, const Placed<PlacedSpan>& pieces, float value) {
  const FillPieces kernel = make_fill(pieces, value);
  if (kernel.begin == kernel.end) return;
  launch(exec, blocks_for((kernel.end - kernel.begin - 1) / FillPieces::kTile + 1), kernel);
}

}  // namespace winnow::kernels::cuda
