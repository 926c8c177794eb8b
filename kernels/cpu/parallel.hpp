// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>

#include "kernels/exec/float_mode.hpp"
#include "kernels/exec/team.hpp"

namespace winnow::kernels::cpu {

/// [0, count) cut into contiguous ranges, at most one a thread, whose borders are multiples of
/// kBlock elements (a cache line of float32 is never shared by two threads of an aligned span).
class Ranges {
 public:
  static constexpr std::size_t kBlock = 64;
  static constexpr std::size_t kSmallest = 4096;  // elements that pay for waking a thread

  Ranges(int threads, std::size_t count)
      : count_(count),
        size_(std::clamp<std::size_t>(count / kSmallest, 1,
                                      threads > 1 ? static_cast<std::size_t>(threads) : 1)) {}

  std::size_t size() const { return size_; }
  std::size_t begin(std::size_t range) const {
    const std::size_t blocks = count_ / kBlock;
    return (blocks / size_ * range + blocks % size_ * range / size_) * kBlock;
  }
  std::size_t end(std::size_t range) const {
    return range + 1 == size_ ? count_ : begin(range + 1);
  }

 private:
  std::size_t count_, size_;
};

/// Runs body(i) for each i in [0, n) by run_parts, under FloatMode. An exception that leaves a body
/// is rethrown here when all have ended.
template <class Body>
void for_each_part(std::size_t n, const Body& body) {
  if (n == 1) {
    const FloatMode mode;
    body(std::size_t{0});
    return;
  }
  struct Job {
    const Body& body;
    std::atomic_flag failed;
    std::exception_ptr error;  // of the part that failed first
  } job{.body = body};
  const auto part = [](void* job_of_parts, std::size_t i) {
    Job& mine = *static_cast<Job*>(job_of_parts);
    const FloatMode mode;
    try {
      mine.body(i);
    } catch (...) {
      if (!mine.failed.test_and_set()) mine.error = std::current_exception();
    }
  };
  run_parts(n, part, &job);
  if (job.error) std::rethrow_exception(job.error);
}

/// Runs body(begin, end) on the ranges of [0, count).
template <class Body>
void for_each_range(int threads, std::size_t count, const Body& body) {
  const Ranges ranges(threads, count);
  for_each_part(ranges.size(), [&](std::size_t i) { body(ranges.begin(i), ranges.end(i)); });
}

}  // namespace winnow::kernels::cpu
