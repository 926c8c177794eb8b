// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/eliasfano.cuh"
#include "kernels/cuda/indices.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/seal.cuh"
#include "kernels/seal.hpp"

namespace winnow::kernels::cuda {

namespace {

template <class Indices>
void enqueue(const Exec& exec, const SealJob& job, const Indices& indices) {
  const SealTask<Indices> task = make_seal_task(job, indices);
  clear(exec, reinterpret_cast<std::uint64_t*>(job.message.data() + job.layout.checksum_at));
  launch<Seal<Indices>>(exec, blocks_of(task.message.pairs), {task});
}

}  // namespace

void seal(const Exec& exec, const SealJob& job) {
  enqueue(exec, job, NoIndices());
}

void seal_raw32(const Exec& exec, const SealJob& job) {
  enqueue(exec, job, Raw32Indices{job.index.data(), job.index.size()});
}

void seal_eliasfano(const Exec& exec, const SealJob& job) {
  enqueue(exec, job, make_eliasfano_indices(job.count, job.index));
}

void seal_bitmap(const Exec& exec, const SealJob& job) {
  enqueue(exec, job, BitmapIndices{job.index.data(), job.index.size(), job.count});
}

}  // namespace winnow::kernels::cuda
