// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/transport/fifo.hpp"

namespace winnow::comm {

/// How far each rank's groups have come. A group is the messages of one start(), numbered like its
/// ticket, from 1 on. A message may move when all earlier groups of its rank are done.
class GroupOrder {
 public:
  explicit GroupOrder(std::size_t ranks) : of_rank_(ranks) {}

  /// Starts the next group of `rank`, which sends or receives `messages` messages.
  void start(std::size_t rank, std::uint64_t messages) {
    of_rank_[rank].left.push(messages);
    of_rank_[rank].skip_done();
  }
  bool reached(std::size_t rank, std::uint64_t group) const {
    return group <= of_rank_[rank].first + 1;
  }
  /// Marks one message of `group` as done. Returns whether the next group may move now.
  bool finish_message(std::size_t rank, std::uint64_t group) {
    --of_rank_[rank].left[group - 1];
    return of_rank_[rank].skip_done();
  }
  /// Drops finished groups up to `group`. Only the rank itself calls it, so that the queue's length
  /// does not depend on when others finish its messages.
  void forget(std::size_t rank, std::uint64_t group) {
    Groups& groups = of_rank_[rank];
    while (groups.left.begin() != groups.first && groups.left.begin() < group) groups.left.pop();
  }

 private:
  struct Groups {
    bool skip_done() {
      const std::uint64_t before = first;
      while (first != left.end() && left[first] == 0) ++first;
      return first != before;
    }
    Fifo<std::uint64_t> left;  // unfinished messages, by group
    std::uint64_t first = 0;   // number in `left` of the first unfinished group
  };
  std::vector<Groups> of_rank_;
};

}  // namespace winnow::comm
