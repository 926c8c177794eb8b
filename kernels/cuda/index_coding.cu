// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/eliasfano.cuh"
#include "kernels/cuda/indices.cuh"
#include "kernels/cuda/launch_messages.cuh"
#include "kernels/exec/place_memory.hpp"
#include "kernels/index_coding.hpp"

namespace winnow::kernels::cuda {

namespace {

/// Launches a Kernel for make(job, scratch), with zeros to count the ones of the job's row, of
/// words_of(job) words. The zeros of all jobs are written at once.
template <class Kernel, class WordsOf, class Make>
void decode_rows(const Exec& exec, std::span<const DecodeJob> jobs, const WordsOf& words_of,
                 const Make& make) {
  std::size_t bytes = 0;
  for (const DecodeJob& job : jobs) bytes += ones_scratch(words_of(job));
  if (bytes == 0) return;
  Workspace& workspace = scratch_of(exec);
  const Workspace::Scope scope(workspace);
  std::byte* scratch = workspace.take<std::byte>(bytes).data();
  clear(exec, scratch, bytes);
  launch_messages<Kernel>(
      exec, jobs,
      [&](const DecodeJob& job) {
        const auto task = make(job, scratch);
        scratch += ones_scratch(words_of(job));
        return task;
      },
      [](const auto& task) { return ones_tiles(task.ones.words, Kernel::kWords); });
}

}  // namespace

void raw32_decode(const Exec& exec, std::span<const DecodeJob> jobs) {
  launch_messages<Raw32Decode>(exec, jobs, make_decode_task,
                               [](const IndicesTask& task) { return blocks_with(2 * task.words); });
}

void eliasfano_decode(const Exec& exec, std::span<const DecodeJob> jobs) {
  const auto words = [](const DecodeJob& job) {
    return make_eliasfano_task(job.count, job.index.size()).high_words;
  };
  decode_rows<EliasFanoDecode>(exec, jobs, words, make_eliasfano_decode_task);
}

void bitmap_decode(const Exec& exec, std::span<const DecodeJob> jobs) {
  const auto words = [](const DecodeJob& job) { return bitmap_bytes(job.count) / 8; };
  decode_rows<BitmapDecode>(exec, jobs, words, make_bitmap_decode_task);
}

void seeded_decode(const Exec& exec, std::span<const DecodeJob> jobs) {
  const auto make = [](const DecodeJob& job) {
    return SeededTask{job.count, job.index.size(), job.index.data(), job.key};
  };
  launch_messages<SeededDecode>(exec, jobs, make,
                                [](const SeededTask& task) { return blocks_with(task.k); });
}

}  // namespace winnow::kernels::cuda
