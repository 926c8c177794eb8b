// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <winnow/transport.hpp>

#include "comm/transport/expect.hpp"
#include "comm/transport/fifo.hpp"

namespace winnow::comm {

/// The starts of a transport that are not complete, in order. Start number n, from 1 on, has ticket
/// n. Keeps its memory, as Fifo does.
template <class Start>
class TicketQueue {
 public:
  bool empty() const { return starts_.empty(); }
  std::uint64_t last() const { return starts_.end(); }         ///< number of the last ticket, or 0
  std::uint64_t completed() const { return starts_.begin(); }  ///< of the last one dropped, or 0
  Start& operator[](std::uint64_t number) { return starts_[number - 1]; }
  const Start& operator[](std::uint64_t number) const { return starts_[number - 1]; }

  Ticket push(const Start& start) {
    starts_.push(start);
    return {last()};
  }
  /// Adds a start with whatever its slot last held, memory included.
  Start& extend() {
    starts_.extend();
    return (*this)[last()];
  }
  void expect_started(Ticket ticket) const { comm::expect_started(ticket, last()); }
  /// Drops starts up to ticket `number`, in order, while is_complete(start). Returns whether all of
  /// them are dropped.
  template <class IsComplete>
  bool retire(std::uint64_t number, const IsComplete& is_complete) {
    for (; completed() < number; starts_.pop()) {
      if (!is_complete(starts_.front())) return false;
    }
    return true;
  }

 private:
  Fifo<Start> starts_;  // ticket n is entry n - 1
};

}  // namespace winnow::comm
