// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>
#include <winnow/error.hpp>

namespace winnow::comm {

/// List entries, numbered from 1; 0 means none. They never move; the last one returned is reused
/// first.
template <class Entry>
class Pool {
 public:
  Entry& operator[](std::uint32_t number) { return blocks_[number / kBlock][number % kBlock]; }
  std::uint32_t take(const Entry& entry) {
    std::uint32_t number = free_;
    if (number != 0) {
      free_ = (*this)[number].next;
    } else {
      WINNOW_EXPECTS(last_ != std::numeric_limits<std::uint32_t>::max(),
                     "a simulation holds at most 2^32 - 1 messages and receipts at a time");
      number = ++last_;
      while (number / kBlock >= blocks_.size())
        blocks_.push_back(std::make_unique_for_overwrite<Entry[]>(kBlock));
    }
    ++used_;
    (*this)[number] = entry;
    return number;
  }
  void give_back(std::uint32_t number) {
    --used_;
    (*this)[number].next = free_;
    free_ = number;
  }
  /// How many entries are taken.
  std::uint64_t used() const { return used_; }

 private:
  static constexpr std::uint32_t kBlock = 1 << 16;

  std::vector<std::unique_ptr<Entry[]>> blocks_;
  std::uint32_t last_ = 0, free_ = 0;
  std::uint64_t used_ = 0;
};

/// A first-in, first-out list of entries of a Pool. All zeros is empty.
struct List {
  std::uint32_t first, last;

  template <class Entry>
  void push(Pool<Entry>& pool, std::uint32_t number) {
    pool[number].next = 0;
    if (first == 0) {
      first = number;
    } else {
      pool[last].next = number;
    }
    last = number;
  }
  /// Removes the first entry from the list; it stays in the pool.
  template <class Entry>
  std::uint32_t pop(Pool<Entry>& pool) {
    const std::uint32_t number = first;
    first = pool[number].next;
    return number;
  }
};

}  // namespace winnow::comm
