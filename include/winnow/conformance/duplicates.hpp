// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>
#include <winnow/conformance/messages.hpp>
#include <winnow/conformance/world.hpp>
#include <winnow/error.hpp>

// Checks of duplicates, for transports that have them.
namespace winnow::conformance {

inline void expect_same_ranks(const Transport& duplicate, const Transport& parent) {
  EXPECT_EQ(duplicate.rank(), parent.rank());
  EXPECT_EQ(duplicate.size(), parent.size());
  EXPECT_EQ(duplicate.node(), parent.node());
  EXPECT_EQ(duplicate.sizes_travel(), parent.sizes_travel());
  EXPECT_EQ(duplicate.allows_threads(), parent.allows_threads());
}

// A receipt of the parent waits for rank 0 while messages of rank 0 pass over the duplicate.
inline void a_duplicate_has_an_order_of_its_own(const World& world) {
  for_each_size(world, [](Rank& rank) {
    Transport& parent = rank.transport();
    const auto duplicate = parent.duplicate(soon());
    expect_same_ranks(*duplicate, parent);
    const auto late = rank.place(pattern(0, 0, 7, 70));
    if (rank.rank() == 0) {
      exchange_all(rank.over(*duplicate), {70, 0, 1000}, 3);
      for (int peer = 1; peer < rank.size(); ++peer) parent.send(late, peer);
      rank.finish();
      return;
    }
    const auto received = rank.place(Bytes(70));
    parent.recv(received, 0, nullptr);
    const Ticket ticket = rank.start();
    exchange_all(rank.over(*duplicate), {70, 0, 1000}, 3);
    parent.wait(ticket, soon());
    EXPECT_TRUE(rank.received(received) == rank.received(late));
  });
}

inline void a_duplicate_outlives_what_it_was_made_from(const World& world) {
  for_each_size(world, [](Rank& rank) {
    auto parent = rank.transport().duplicate(soon());
    const auto duplicate = parent->duplicate(soon());
    parent.reset();
    exchange_all(rank.over(*duplicate), {10, 1000});
    exchange_all(rank.over(*duplicate->duplicate(soon())), {10, 1000});
  });
}

inline void a_failure_stays_in_its_duplicate(const World& world) {
  for_each_size(world, [](Rank& rank) {
    const auto failed = rank.transport().duplicate(soon());
    const auto next = failed->duplicate(soon());
    const auto all_pass = [&] { exchange_all(rank.over(*next), {10, 1000}); };
    all_pass();
    failed->abort("enough");
    EXPECT_THROW((void)failed->duplicate(soon()), CommError);
    exchange_all(rank, {10, 1000});
    all_pass();
    rank.transport().abort("enough of that, too");
    all_pass();
  });
}

inline void a_duplicate_needs_all_ranks(const World& world) {
  for_each_size(world, [](Rank& rank) {
    if (rank.size() == 1 || rank.rank() == 0) return;
    EXPECT_THROW((void)rank.transport().duplicate(briefly()), CommError);
    expect_unusable(rank);
  });
}

}  // namespace winnow::conformance
