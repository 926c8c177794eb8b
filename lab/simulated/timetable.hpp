// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace winnow::comm {

/// Which of the numbers 0 .. size-1 is due next; each has one time or none. Ties go to the lowest
/// number. A heap with four children per node that knows where each number stands; only the
/// constructor allocates.
class Timetable {
 public:
  explicit Timetable(std::size_t size) : place_(size) { heap_.reserve(size); }

  bool empty() const { return heap_.empty(); }
  double time() const { return heap_.front().time; }             ///< of the next number
  std::uint32_t number() const { return heap_.front().number; }  ///< the next number

  /// Sets the time of `number`, replacing the old one if any.
  void set(std::uint32_t number, double time) {
    if (place_[number] == 0) {
      heap_.push_back({time, number});
      raise(heap_.size() - 1, {time, number});
      return;
    }
    const std::size_t place = place_[number] - 1;
    const Entry entry{time, number};
    if (entry < heap_[place]) {
      raise(place, entry);
    } else {
      lower(place, entry);
    }
  }

  void erase(std::uint32_t number) {
    if (place_[number] == 0) return;
    const std::size_t place = place_[number] - 1;
    place_[number] = 0;
    const Entry last = heap_.back();
    heap_.pop_back();
    if (place == heap_.size()) return;
    if (place > 0 && last < heap_[(place - 1) / kChildren]) {
      raise(place, last);
    } else {
      lower(place, last);
    }
  }

 private:
  static constexpr std::size_t kChildren = 4;

  struct Entry {
    double time;
    std::uint32_t number;
    bool operator<(const Entry& other) const {
      return time < other.time || (time == other.time && number < other.number);
    }
  };

  void put(std::size_t place, const Entry& entry) {
    heap_[place] = entry;
    place_[entry.number] = static_cast<std::uint32_t>(place + 1);
  }
  void raise(std::size_t place, const Entry& entry) {
    while (place > 0 && entry < heap_[(place - 1) / kChildren]) {
      put(place, heap_[(place - 1) / kChildren]);
      place = (place - 1) / kChildren;
    }
    put(place, entry);
  }
  void lower(std::size_t place, const Entry& entry) {
    for (;;) {
      const std::size_t begin = kChildren * place + 1;
      std::size_t least = place;
      const Entry* best = &entry;
      for (std::size_t child = begin; child < begin + kChildren && child < heap_.size(); ++child) {
        if (!(heap_[child] < *best)) continue;
        least = child;
        best = &heap_[child];
      }
      if (least == place) break;
      put(place, *best);
      place = least;
    }
    put(place, entry);
  }

  std::vector<Entry> heap_;
  std::vector<std::uint32_t> place_;  // 1 + a number's place in the heap; 0 if it is not there
};

}  // namespace winnow::comm
