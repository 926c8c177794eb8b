// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>

#include "kernels/exec/float_mode.hpp"

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

/// Runs body(i) for each i in [0, n), each in a thread of its own where OpenMP has one left, under
/// FloatMode. An exception that leaves a body is rethrown here when all have ended.
template <class Body>
void for_each_part(std::size_t n, const Body& body) {
  if (n == 1) {
    const FloatMode mode;
    body(std::size_t{0});
    return;
  }
  std::exception_ptr error;
  const int parts = static_cast<int>(n);
#ifdef _OPENMP
#pragma omp parallel for schedule(static, 1) num_threads(parts)
#endif
  for (int i = 0; i < parts; ++i) {
    const FloatMode mode;
    try {
      body(static_cast<std::size_t>(i));
    } catch (...) {
#ifdef _OPENMP
#pragma omp critical(winnow_for_each_part)
#endif
      error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

/// Runs body(begin, end) on the ranges of [0, count).
template <class Body>
void for_each_range(int threads, std::size_t count, const Body& body) {
  const Ranges ranges(threads, count);
  for_each_part(ranges.size(), [&](std::size_t i) { body(ranges.begin(i), ranges.end(i)); });
}

}  // namespace winnow::kernels::cpu
