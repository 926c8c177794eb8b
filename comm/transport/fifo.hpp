// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace winnow::comm {

/// A queue that keeps its memory: it allocates only when it holds more than ever before. Entries
/// are numbered by arrival, and keep their number when entries before them leave.
template <class T>
class Fifo {
 public:
  bool empty() const { return begin_ == end_; }
  std::uint64_t begin() const { return begin_; }  ///< number of the first entry
  std::uint64_t end() const { return end_; }      ///< number of the next entry
  T& operator[](std::uint64_t number) { return slots_[index(number)]; }
  const T& operator[](std::uint64_t number) const { return slots_[index(number)]; }
  T& front() { return (*this)[begin_]; }

  void push(const T& entry) {
    extend();
    (*this)[end_ - 1] = entry;
  }
  /// Adds an entry with whatever its slot last held, memory included.
  void extend() {
    (void)next();
    ++end_;
  }
  /// The slot of the next entry, which is not in the queue before extend.
  T& next() {
    if (end_ - begin_ == slots_.size()) grow();
    return (*this)[end_];
  }
  void pop() { ++begin_; }
  void clear() { begin_ = end_; }
  /// The memory of all entries, and of as many more as can be added before it grows.
  std::span<T> slots() { return slots_; }
  void reserve(std::size_t entries) {
    while (slots_.size() < entries) grow();
  }

 private:
  // The number of slots is a power of two, so a mask maps numbers to slots.
  std::size_t index(std::uint64_t number) const { return number & (slots_.size() - 1); }
  void grow() {
    Fifo larger;
    larger.slots_.resize(slots_.empty() ? 16 : 2 * slots_.size());
    for (std::uint64_t n = begin_; n != end_; ++n) larger[n] = std::move((*this)[n]);
    slots_ = std::move(larger.slots_);
  }

  std::vector<T> slots_;
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
};

}  // namespace winnow::comm
