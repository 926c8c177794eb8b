// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/transport/fifo.hpp"

namespace winnow::comm {

/// How far the groups of each rank have come: the messages that one start() sets going, numbered
/// like its ticket, from 1 on. A message may move when all earlier groups of its rank are done.
class GroupOrder {
 public:
  explicit GroupOrder(std::size_t ranks) : of_rank_(ranks) {}

  /// The next group of `rank`, of so many messages, which it sends or receives.
  void start(std::size_t rank, std::uint64_t messages) {
    of_rank_[rank].left.push(messages);
    of_rank_[rank].skip_done();
  }
  bool reached(std::size_t rank, std::uint64_t group) const {
    return group <= of_rank_[rank].first + 1;
  }
  /// One message of `group` is done. Whether the next group may move now.
  bool finish_message(std::size_t rank, std::uint64_t group) {
    --of_rank_[rank].left[group - 1];
    return of_rank_[rank].skip_done();
  }
  /// Drops what is done up to `group`. For the rank itself, so that how much is kept does not
  /// depend on when others finish its messages.
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
    Fifo<std::uint64_t> left;  // messages that are not done, by group
    std::uint64_t first = 0;   // number in `left` of the first group that is not done
  };
  std::vector<Groups> of_rank_;
};

}  // namespace winnow::comm
