// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "kernels/cuda/ones_tiles.hpp"
#include "kernels/index_coding.hpp"
#include "tests/model/machine.hpp"
#include "tests/model/scratch.hpp"

namespace winnow::tests {

/// Launches a Kernel of MessageTasks once, for the tasks make(job) of all jobs.
template <class Kernel, class Job, class Make>
void launch_shared(Machine& machine, std::span<const Job> jobs, const Make& make) {
  constexpr unsigned kBlocksEach = 2;
  Kernel kernel = {};
  for (const Job& job : jobs)
    kernel.messages.tasks[kernel.messages.count++] = std::invoke(make, job);
  machine.launch(kBlocksEach * kernel.messages.count, kernel);
}

/// Zeros to count the ones of each job's row, of words_of(job) words.
class OnesZeros {
 public:
  template <class WordsOf>
  OnesZeros(std::span<const kernels::DecodeJob> jobs, const WordsOf& words_of)
      : scratch_(bytes_of(jobs, words_of)) {
    std::ranges::fill(scratch_.span(), std::byte{0});
    next_ = scratch_.span().data();
  }

  std::byte* take(std::uint64_t words) {
    std::byte* const taken = next_;
    next_ += kernels::cuda::ones_scratch(words);
    return taken;
  }

 private:
  template <class WordsOf>
  static std::size_t bytes_of(std::span<const kernels::DecodeJob> jobs, const WordsOf& words_of) {
    std::size_t bytes = 0;
    for (const kernels::DecodeJob& job : jobs) bytes += kernels::cuda::ones_scratch(words_of(job));
    return bytes;
  }

  Scratch scratch_;
  std::byte* next_;
};

}  // namespace winnow::tests
