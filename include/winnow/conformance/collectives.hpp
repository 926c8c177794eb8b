// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>
#include <winnow/conformance/messages.hpp>
#include <winnow/conformance/world.hpp>
#include <winnow/error.hpp>

// Checks of collectives, the transport's own and the default ones over its messages, and of
// subsets.
namespace winnow::conformance {

/// Element i of a rank: 24 bits of a hash times a scale of 2^-24 to 2^-18 that differs between
/// ranks, so that a sum of three or more depends on its order.
inline float element(int rank, std::uint64_t i) {
  const auto r = static_cast<unsigned>(rank);
  std::uint64_t hash = (i + 1) * 0x9E3779B97F4A7C15U + r * std::uint64_t{0xD6E8FEB8};
  hash = (hash ^ (hash >> 32)) * 0xBF58476D1CE4E5B9U;
  const auto mantissa = static_cast<std::int32_t>(hash >> 39) - (1 << 24);
  return static_cast<float>(mantissa) * std::bit_cast<float>((103U + (r * 5U) % 7U) << 23);
}

inline std::vector<float> gradient(int rank, std::uint64_t count) {
  std::vector<float> elements(count);
  for (std::uint64_t i = 0; i < count; ++i) elements[i] = element(rank, i);
  return elements;
}

/// The sum documented in transport.hpp: chunk c in the order c+1, c+2, ..., c. `members` are the
/// ranks whose gradients are summed, in ring order.
inline std::vector<float> ring_sum(const std::vector<int>& members, std::uint64_t count) {
  const int size = static_cast<int>(members.size());
  const auto element_of = [&](int place, std::uint64_t i) {
    return element(members[static_cast<std::size_t>(place % size)], i);
  };
  std::vector<float> sum(count);
  for (int c = 0; c < size; ++c) {
    const Chunk chunk = ring_chunk(count, c, size);
    for (std::uint64_t i = chunk.begin; i < chunk.end; ++i) {
      sum[i] = element_of(c + 1, i);
      for (int n = 2; n <= size; ++n) sum[i] += element_of(c + n, i);
    }
  }
  return sum;
}

inline std::vector<int> first_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

inline void expect_same_bits(std::span<const float> actual, std::span<const float> expected) {
  EXPECT_EQ(actual.size(), expected.size());
  if (actual.size() != expected.size()) return;
  const auto same = [](float a, float b) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
  };
  const auto [a, e] = std::mismatch(actual.begin(), actual.end(), expected.begin(), same);
  EXPECT_TRUE(a == actual.end()) << "element " << a - actual.begin() << " of " << actual.size()
                                 << " is " << *a << ", not " << *e;
}

/// Expects sums of the elements from `begin` on over all of `ranks` ranks. A native sum may take
/// any order; the longest chain bounds its error.
inline void expect_close(std::span<const float> actual, std::uint64_t begin, int ranks) {
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < actual.size(); ++i) {
    double sum = 0, magnitude = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto term = static_cast<double>(element(rank, begin + i));
      sum += term;
      magnitude += std::abs(term);
    }
    const double error = std::abs(static_cast<double>(actual[i]) - sum);
    if (!(error <= ranks * std::ldexp(magnitude, -24))) ++wrong;
  }
  EXPECT_EQ(wrong, 0U) << "of " << actual.size();
}

/// 0, 1, fewer than ranks, as many, one more, odd, and several blocks in each chunk.
inline std::vector<std::uint64_t> counts(int size) {
  const auto ranks = static_cast<std::uint64_t>(size);
  return {0, 1, ranks - 1, ranks, ranks + 1, 1001, 4 * 65536 * ranks + 1001};
}

inline void the_ring_sums_in_its_documented_order(const World& world) {
  for_each_size(world, [](Rank& rank) {
    for (const std::uint64_t count : counts(rank.size())) {
      const auto elements = rank.place(gradient(rank.rank(), count));
      const std::uint64_t before = rank.transport().bytes_sent();
      rank.transport().Transport::all_reduce(rank.exec(), elements, ReduceOp::sum, soon());
      expect_same_bits(rank.result<float>(elements), ring_sum(first_ranks(rank.size()), count));
      // In the first half every chunk but the own one; in the second every chunk but the next
      // rank's.
      const auto left_out = [&](int chunk) {
        const Chunk c = ring_chunk(count, chunk, rank.size());
        return c.end - c.begin;
      };
      if (rank.size() == 1) continue;
      const bool in_one_step = reduces_in_one_step(count, sizeof(float), rank.size());
      const std::uint64_t others = static_cast<std::uint64_t>(rank.size()) - 1;
      EXPECT_EQ(rank.transport().bytes_sent() - before,
                4 * (in_one_step ? others * count
                                 : 2 * count - left_out(rank.rank()) - left_out(rank.peer())));
    }
  });
}

inline void reduce_scatter_leaves_the_own_chunk(const World& world) {
  for_each_size(world, [](Rank& rank) {
    for (const std::uint64_t count : counts(rank.size())) {
      const Chunk chunk = ring_chunk(count, rank.rank(), rank.size());
      const std::uint64_t length = chunk.end - chunk.begin;
      const auto by_ring = rank.place(gradient(rank.rank(), count));
      const auto own_way = rank.place(gradient(rank.rank(), count));
      rank.transport().Transport::reduce_scatter(rank.exec(), by_ring, soon());
      const std::vector<float> sum = ring_sum(first_ranks(rank.size()), count);
      expect_same_bits(rank.result<float>(by_ring.subspan(chunk.begin, length)),
                       std::span(sum).subspan(chunk.begin, length));
      rank.transport().reduce_scatter(rank.exec(), own_way, soon());
      expect_close(rank.result<float>(own_way.subspan(chunk.begin, length)), chunk.begin,
                   rank.size());
    }
  });
}

inline void the_transports_own_sum_is_close(const World& world) {
  for_each_size(world, [](Rank& rank) {
    for (const std::uint64_t count : counts(rank.size())) {
      const auto elements = rank.place(gradient(rank.rank(), count));
      rank.transport().all_reduce(rank.exec(), elements, ReduceOp::sum, soon());
      expect_close(rank.result<float>(elements), 0, rank.size());
    }
  });
}

inline void all_gather_concatenates_in_rank_order(const World& world) {
  for_each_size(world, [](Rank& rank) {
    const auto ranks = static_cast<std::size_t>(rank.size());
    for (const std::size_t bytes :
         std::initializer_list<std::size_t>{0, 1, 4, 4096, 4097, 1000003}) {
      Bytes expected;
      for (int peer = 0; peer < rank.size(); ++peer) {
        const Bytes part = pattern(peer, 0, bytes, bytes);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      const Bytes content = pattern(rank.rank(), 0, bytes, bytes);
      const auto mine = rank.place(content), all = rank.place(Bytes(bytes * ranks));
      rank.transport().all_gather(rank.exec(), mine, all, soon());
      EXPECT_TRUE(rank.result<std::byte>(all) == expected) << bytes << " bytes";
      Bytes initial(bytes * ranks);
      const std::size_t begin = static_cast<std::size_t>(rank.rank()) * bytes;
      std::ranges::copy(content, initial.begin() + static_cast<std::ptrdiff_t>(begin));
      const auto in_place = rank.place(initial);
      rank.transport().all_gather(rank.exec(), in_place.subspan(begin, bytes), in_place, soon());
      EXPECT_TRUE(rank.result<std::byte>(in_place) == expected) << bytes << " bytes in place";
    }
  });
}

/// Messages fill their slots, or do not.
inline void all_gathers_may_be_enqueued(const World& world) {
  for_each_size(world, [](Rank& rank) {
    Transport& transport = rank.transport();
    const auto ranks = static_cast<std::size_t>(rank.size());
    const auto self = static_cast<std::size_t>(rank.rank());
    constexpr std::size_t kSlot = 4160, kShort = 4100;
    const auto slots_of = [&](int number, std::size_t peer) {
      return pattern(static_cast<int>(peer), number, kSlot, kSlot);
    };
    std::vector<std::span<std::byte>> all;
    std::vector<std::vector<std::uint64_t>> received(2, std::vector<std::uint64_t>(ranks));
    std::uint64_t sent = transport.bytes_sent();
    for (const int number : {0, 1}) {
      Bytes initial(ranks * kSlot);
      std::ranges::copy(slots_of(number, self),
                        initial.begin() + static_cast<std::ptrdiff_t>(self * kSlot));
      all.push_back(rank.place(initial));
      const auto n = static_cast<std::size_t>(number);
      transport.enqueue_all_gather(all[n], number == 0 ? kSlot : kShort, received[n]);
    }
    transport.wait(transport.start(rank.exec()), soon());
    sent = transport.bytes_sent() - sent;
    EXPECT_EQ(sent, (ranks - 1) * (kSlot + kShort));
    for (const int number : {0, 1}) {
      const auto n = static_cast<std::size_t>(number);
      const std::size_t message_bytes = number == 0 ? kSlot : kShort;
      EXPECT_EQ(received[n], std::vector<std::uint64_t>(ranks, message_bytes));
      const auto got = rank.result<std::byte>(all[n]);
      for (std::size_t peer = 0; peer < ranks; ++peer) {
        EXPECT_TRUE(std::ranges::equal(
            std::span(got).subspan(peer * kSlot, message_bytes),
            std::span<const std::byte>(slots_of(number, peer)).first(message_bytes)));
      }
    }
  });
}

inline void collectives_refuse_wrong_arguments_before_they_communicate(const World& world) {
  for_each_size(world, [](Rank& rank) {
    Transport& transport = rank.transport();
    const auto elements = rank.place(std::vector<float>(10));
    const auto mine = rank.place(Bytes(3));
    const auto all = rank.place(Bytes(3 * static_cast<std::size_t>(rank.size()) + 1));
    Workspace workspace;
    const Exec device{.place = Place::cuda, .workspace = &workspace};
    EXPECT_THROW(transport.Transport::all_reduce({}, elements, ReduceOp::sum, soon()), UsageError);
    EXPECT_THROW(transport.Transport::reduce_scatter({}, elements, soon()), UsageError);
    EXPECT_THROW(transport.Transport::all_reduce(device, elements, ReduceOp::sum, soon()),
                 UsageError);
    EXPECT_THROW(transport.all_gather(rank.exec(), mine, all, soon()), UsageError);
    std::vector<std::uint64_t> received(static_cast<std::size_t>(rank.size()));
    EXPECT_THROW(transport.enqueue_all_gather(all, 5, received), UsageError);
    EXPECT_EQ(transport.bytes_sent(), 0U);
  });
}

inline void a_ring_that_waits_for_an_absent_rank_ends_at_its_deadline(const World& world) {
  for_each_size(world, [](Rank& rank) {
    if (rank.size() == 1 || rank.rank() == 0) return;
    const auto elements = rank.place(std::vector<float>(300000));
    EXPECT_THROW(
        rank.transport().Transport::all_reduce(rank.exec(), elements, ReduceOp::sum, briefly()),
        CommError);
  });
}

/// Sums over `members` of the transport, in that order; they include this rank.
inline void expect_subset_sums(const Rank& parent, const std::vector<int>& members) {
  const auto subset = parent.transport().subset(members);
  const Rank rank = parent.over(*subset);
  EXPECT_EQ(rank.size(), static_cast<int>(members.size()));
  EXPECT_EQ(members[static_cast<std::size_t>(rank.rank())], parent.rank());
  EXPECT_EQ(subset->node(), parent.transport().node());
  EXPECT_EQ(subset->sizes_travel(), parent.transport().sizes_travel());
  for (const std::uint64_t count : counts(rank.size())) {
    const auto elements = rank.place(gradient(parent.rank(), count));
    subset->Transport::all_reduce(rank.exec(), elements, ReduceOp::sum, soon());
    expect_same_bits(rank.result<float>(elements), ring_sum(members, count));
  }
  exchange_all(rank, {10, 1000}, 3);
  const auto mine = rank.place(std::vector{parent.rank()});
  const auto gathered = rank.place(std::vector<int>(members.size()));
  subset->all_gather(rank.exec(), std::as_bytes(mine), std::as_writable_bytes(gathered), soon());
  EXPECT_EQ(rank.result<int>(gathered), members);
}

inline void subset_of_even_and_odd_ranks(const World& world) {
  for_each_size(world, [](Rank& rank) {
    std::vector<int> members;
    for (int member = rank.rank() % 2; member < rank.size(); member += 2) members.push_back(member);
    expect_subset_sums(rank, members);
    exchange_all(rank, {10, 1000});
  });
}

inline void subset_of_all_ranks_in_reverse(const World& world) {
  for_each_size(world, [](Rank& rank) {
    std::vector<int> members = first_ranks(rank.size());
    std::ranges::reverse(members);
    expect_subset_sums(rank, members);
  });
}

inline void subset_of_a_subset(const World& world) {
  for_each_size(world, [](Rank& rank) {
    std::vector<int> members = first_ranks(rank.size());
    std::ranges::rotate(members, members.begin() + 1);
    const auto rotated = rank.transport().subset(members);
    // `rotated` without its rank 0, which is rank 1 of the transport (or 0 if there is one rank)
    // and makes a subset of itself.
    const bool alone = rotated->rank() == 0;
    std::vector<int> rest = first_ranks(rotated->size());
    rest.erase(rest.begin());
    const auto subset = rotated->subset(alone ? std::vector{0} : rest);
    const auto elements = rank.place(gradient(rank.rank(), 5000));
    subset->Transport::all_reduce(rank.exec(), elements, ReduceOp::sum, soon());
    const int first = members.front();
    members.erase(members.begin());
    expect_same_bits(rank.result<float>(elements),
                     ring_sum(alone ? std::vector{first} : members, 5000));
  });
}

inline void abort_of_a_subset_reaches_its_ranks(const World& world) {
  for_each_size(world, [&](Rank& rank) {
    std::vector<int> members = first_ranks(rank.size());
    std::ranges::reverse(members);
    const auto subset = rank.transport().subset(members);
    if (subset->rank() == 0) {
      subset->abort("enough");
      return;
    }
    const std::string text = thrown_by([&] { wait_for_ever(rank.over(*subset), 0); });
    const std::string who = "rank " + std::to_string(rank.size() - 1) + " aborted: ";
    EXPECT_TRUE(contains(text, (world.names_ranks ? who : "") + "enough")) << text;
  });
}

inline void subset_refuses_what_is_no_group_of_this_rank(const World& world) {
  for_each_size(world, [](Rank& rank) {
    Transport& transport = rank.transport();
    EXPECT_THROW((void)transport.subset({}), UsageError);
    EXPECT_THROW((void)transport.subset(std::vector{rank.rank(), rank.size()}), UsageError);
    EXPECT_THROW((void)transport.subset(std::vector{rank.rank(), -1}), UsageError);
    EXPECT_THROW((void)transport.subset(std::vector{rank.rank(), rank.rank()}), UsageError);
    if (rank.size() > 1) {
      EXPECT_THROW((void)transport.subset(std::vector{rank.peer()}), UsageError);
    }
    const auto alone = transport.subset(std::vector{rank.rank()});
    EXPECT_THROW(alone->send({}, 0), UsageError);
    EXPECT_THROW(alone->send({}, 1), UsageError);
  });
}

}  // namespace winnow::conformance
