// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/transport.hpp>

namespace winnow::comm {

// Checks that every transport makes first; each throws UsageError. libwinnow_mpi uses the first
// three.

/// `peer` is a rank of `size`, and not `rank`.
[[gnu::visibility("default")]] void expect_peer(int peer, int rank, int size);
/// `ticket` is one of the `started` that start() has returned.
[[gnu::visibility("default")]] void expect_started(Ticket ticket, std::uint64_t started);
/// A message or a collective's elements lie where memory can be.
[[gnu::visibility("default")]] void expect_memory(std::span<const std::byte> memory);
/// Checks elements whose bytes may be more than can be counted.
[[gnu::visibility("default")]] void expect_memory(const Elements& elements);
/// An all-gather of `mine` bytes from each of `ranks` ranks fills `all`.
void expect_gatherable(std::size_t mine, std::size_t all, int ranks);
/// `all` bytes are a slot of one size for each of `ranks` messages. Returns that size.
std::size_t expect_slots(std::size_t all, std::size_t message_bytes, int ranks);

}  // namespace winnow::comm
