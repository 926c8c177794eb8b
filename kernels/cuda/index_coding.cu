// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/eliasfano.cuh"
#include "kernels/cuda/indices.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/exec/place_memory.hpp"
#include "kernels/index_coding.hpp"

namespace winnow::kernels::cuda {

namespace {

/// Calls each(job, scratch) with zeros to count the ones of the job's row, of words_of(job) words.
/// The zeros of all jobs are written at once.
template <class WordsOf, class Each>
void for_each_row(const Exec& exec, std::span<const DecodeJob> jobs, const WordsOf& words_of,
                  const Each& each) {
  std::size_t bytes = 0;
  for (const DecodeJob& job : jobs) bytes += ones_scratch(words_of(job));
  if (bytes == 0) return;
  Workspace& workspace = scratch_of(exec);
  const Workspace::Scope scope(workspace);
  std::byte* scratch = workspace.take<std::byte>(bytes).data();
  clear(exec, scratch, bytes);
  for (const DecodeJob& job : jobs) {
    each(job, scratch);
    scratch += ones_scratch(words_of(job));
  }
}

}  // namespace

void raw32_decode(const Exec& exec, std::span<const DecodeJob> jobs) {
  for (const DecodeJob& job : jobs) {
    const IndicesTask task = make_decode_task(job);
    if (task.words > 0) launch<Raw32Decode>(exec, blocks_of(2 * task.words), {task});
  }
}

void eliasfano_decode(const Exec& exec, std::span<const DecodeJob> jobs) {
  const auto words = [](const DecodeJob& job) {
    return make_eliasfano_task(job.count, job.index.size()).high_words;
  };
  for_each_row(exec, jobs, words, [&](const DecodeJob& job, std::byte* scratch) {
    const EliasFanoTask task = make_eliasfano_decode_task(job, scratch);
    launch<EliasFanoDecode>(exec, blocks_for(ones_tiles(task.high_words)), {task});
    launch<EliasFanoCheck>(exec, blocks_of(task.k), {task});
  });
}

void bitmap_decode(const Exec& exec, std::span<const DecodeJob> jobs) {
  const auto words = [](const DecodeJob& job) { return bitmap_bytes(job.count) / 8; };
  for_each_row(exec, jobs, words, [&](const DecodeJob& job, std::byte* scratch) {
    const IndicesTask task = make_bitmap_decode_task(job, scratch);
    launch<BitmapDecode>(exec, blocks_for(ones_tiles(task.words)), {task});
  });
}

void seeded_decode(const Exec& exec, std::span<const DecodeJob> jobs) {
  for (const DecodeJob& job : jobs) {
    const std::uint64_t k = job.index.size();
    if (k > 0) launch<SeededDecode>(exec, blocks_of(k), {job.count, k, job.index.data(), job.key});
  }
}

}  // namespace winnow::kernels::cuda
