// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/eliasfano.cuh"
#include "kernels/cuda/finish_message.cuh"
#include "kernels/cuda/indices.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/launch_messages.cuh"
#include "kernels/cuda/launch_pieces.cuh"
#include "kernels/finish_message.hpp"

namespace winnow::kernels::cuda {

namespace {

template <class Indices>
std::uint64_t* checksum_of(const FinishTask<Indices>& task) {
  return reinterpret_cast<std::uint64_t*>(task.at(task.fields.checksum_word));
}

void clear_checksums(const Exec& exec, ClearChecksums& some) {
  if (some.count > 0) launch(exec, 1, some);
  some.count = 0;
}

/// Launches tasks that lie behind each other: one, or several, that share kernels.
template <class Indices>
void launch_finished(const Exec& exec, std::span<const std::byte> bytes) {
  using Task = FinishTask<Indices>;
  constexpr unsigned kTogether = 3900 / sizeof(Task);
  const std::span<const Task> tasks(reinterpret_cast<const Task*>(bytes.data()),
                                    bytes.size() / sizeof(Task));
  const auto itself = [](const Task& task) { return task; };
  const auto blocks_of_task = [](const Task& task) { return blocks_with(task.message.pairs); };
  if (tasks.size() == 1) {
    clear(exec, checksum_of(tasks.front()));
    launch_messages<FinishMessage<Indices, 1>>(exec, tasks, itself, blocks_of_task);
    return;
  }
  ClearChecksums checksums = {};
  for (const Task& task : tasks) {
    if (checksums.count == ClearChecksums::kMost) clear_checksums(exec, checksums);
    checksums.word[checksums.count++] = checksum_of(task);
  }
  clear_checksums(exec, checksums);
  launch_messages<FinishMessage<Indices, kTogether>>(exec, tasks, itself, blocks_of_task);
}

/// Now, or together with others of its kind.
template <class Indices>
void enqueue(const Exec& exec, const FinishJob& job, const Indices& indices) {
  const FinishTask<Indices> task = make_finish_task(job, indices);
  const auto bytes = std::as_bytes(std::span(&task, 1));
  if (is_collected(exec)) {
    exec.launches->add(&launch_finished<Indices>, bytes);
  } else {
    launch_finished<Indices>(exec, bytes);
  }
}

}  // namespace

void finish_message(const Exec& exec, const FinishJob& job) {
  enqueue(exec, job, NoIndices());
}

void finish_raw32(const Exec& exec, const FinishJob& job) {
  enqueue(exec, job, Raw32Indices{job.index.data(), job.index.size()});
}

void finish_eliasfano(const Exec& exec, const FinishJob& job) {
  enqueue(exec, job, make_eliasfano_indices(job.count, job.index));
}

void finish_bitmap(const Exec& exec, const FinishJob& job) {
  enqueue(exec, job, BitmapIndices{job.index.data(), job.index.size(), job.count});
}

}  // namespace winnow::kernels::cuda
