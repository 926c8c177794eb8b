// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <winnow/error.hpp>
#include <winnow/transport.hpp>

#include "comm/transport/memory.hpp"

namespace winnow::comm {

// Checks that every transport makes first; each throws UsageError.

/// `peer` is a rank of `size`, and not `rank`.
inline void expect_peer(int peer, int rank, int size) {
  WINNOW_EXPECTS(peer >= 0 && peer < size && peer != rank,
                 "peer " + std::to_string(peer) + " of rank " + std::to_string(rank) + " of " +
                     std::to_string(size) + ": must be another rank");
}
/// `ticket` is one of the `started` that start() has returned.
inline void expect_started(Ticket ticket, std::uint64_t started) {
  WINNOW_EXPECTS(ticket.number <= started, "wait for ticket " + std::to_string(ticket.number) +
                                               " of " + std::to_string(started) + " started");
}
/// A message or a collective's elements lie where memory can be.
inline void expect_memory(std::span<const std::byte> memory) {
  const std::string wrong = memory_error(memory.data(), memory.size(), 1);
  WINNOW_EXPECTS(wrong.empty(), "the memory of a message" + wrong);
}
/// Checks elements whose bytes may be more than can be counted.
inline void expect_memory(const Elements& elements) {
  const std::string wrong =
      memory_error(elements.data(), elements.size(), bytes_of(elements.type()));
  WINNOW_EXPECTS(wrong.empty(), "the memory of a collective" + wrong);
}
/// An all-gather of `mine` bytes from each of `ranks` ranks fills `all`.
inline void expect_gatherable(std::size_t mine, std::size_t all, int ranks) {
  const auto parts = static_cast<std::size_t>(ranks);
  WINNOW_EXPECTS(all / parts == mine && all % parts == 0,
                 "all_gather of " + std::to_string(mine) + " bytes from each of " +
                     std::to_string(parts) + " ranks into " + std::to_string(all) +
                     " bytes: must be as many from each");
}
/// `all` bytes are a slot of one size for each of `ranks` messages. Returns that size.
inline std::size_t expect_slots(std::size_t all, std::size_t message_bytes, int ranks) {
  const auto slots = static_cast<std::size_t>(ranks);
  WINNOW_EXPECTS(all % slots == 0 && all / slots >= message_bytes,
                 std::to_string(all) + " bytes as " + std::to_string(slots) +
                     " slots for messages of " + std::to_string(message_bytes) +
                     " bytes: slots must have one size and hold a message each");
  return all / slots;
}

}  // namespace winnow::comm
