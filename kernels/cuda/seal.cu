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
void enqueue(const Exec& exec, const SealJob& job, const typename Indices::Task& indices) {
  const SealTask<Indices> task = make_seal_task<Indices>(job, indices);
  clear(exec, reinterpret_cast<std::uint64_t*>(job.message.data() + job.layout.checksum_at));
  launch<Seal<Indices>>(exec, blocks_of(task.message.pairs), task);
}

}  // namespace

void seal(const Exec& exec, const SealJob& job) {
  enqueue<NoIndices>(exec, job, {});
}

void seal_raw32(const Exec& exec, const SealJob& job) {
  enqueue<Raw32Indices>(exec, job, make_raw32_encode_task(job.index));
}

void seal_eliasfano(const Exec& exec, const SealJob& job) {
  enqueue<EliasFanoIndices>(exec, job, make_eliasfano_encode_task(job.count, job.index));
}

void seal_bitmap(const Exec& exec, const SealJob& job) {
  enqueue<BitmapIndices>(exec, job, make_bitmap_encode_task(job.count, job.index));
}

}  // namespace winnow::kernels::cuda
