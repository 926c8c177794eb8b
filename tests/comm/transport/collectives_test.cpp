// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// A transport's collectives, its subsets, and discover().
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/topology.hpp>

#include "tests/harness/ranks.hpp"

namespace winnow {
namespace {

Deadline soon() {
  return Deadline::after(std::chrono::seconds(60));
}

void for_each_size(const tests::RankBody& body) {
  for (const int ranks : tests::rank_counts()) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    tests::run_ranks(ranks, body);
  }
}

// Element i of a rank: 24 bits of a hash times a scale of 2^-24 to 2^-18 that differs between
// ranks, so that a sum of three or more depends on its order.
float element(unsigned rank, std::uint64_t i) {
  std::uint64_t hash = (i + 1) * 0x9E3779B97F4A7C15u + rank * std::uint64_t{0xD6E8FEB8};
  hash = (hash ^ (hash >> 32)) * 0xBF58476D1CE4E5B9u;
  const auto mantissa = static_cast<std::int32_t>(hash >> 39) - (1 << 24);
  return static_cast<float>(mantissa) * std::bit_cast<float>((103u + (rank * 5u) % 7u) << 23);
}

// Element i of the rank at a place of `members`, modulo their number.
float element_of(const std::vector<int>& members, int place, std::uint64_t i) {
  return element(static_cast<unsigned>(members[static_cast<std::size_t>(place) % members.size()]),
                 i);
}

std::vector<float> gradient(int rank, std::uint64_t count) {
  std::vector<float> elements(count);
  for (std::uint64_t i = 0; i < count; ++i) elements[i] = element(static_cast<unsigned>(rank), i);
  return elements;
}

// The sum documented in transport.hpp: chunk c in the order c+1, c+2, ..., c. `members` are the
// ranks whose gradients are summed, in ring order.
std::vector<float> ring_sum(const std::vector<int>& members, std::uint64_t count) {
  const int size = static_cast<int>(members.size());
  std::vector<float> sum(count);
  for (int c = 0; c < size; ++c) {
    const Chunk chunk = ring_chunk(count, c, size);
    for (std::uint64_t i = chunk.begin; i < chunk.end; ++i) {
      sum[i] = element_of(members, c + 1, i);
      for (int n = 2; n <= size; ++n) sum[i] += element_of(members, c + n, i);
    }
  }
  return sum;
}

std::vector<int> first_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

void expect_same_bits(std::span<const float> actual, std::span<const float> expected) {
  EXPECT_EQ(actual.size(), expected.size());
  if (actual.size() != expected.size()) return;
  const auto same = [](float a, float b) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
  };
  const auto [a, e] = std::mismatch(actual.begin(), actual.end(), expected.begin(), same);
  EXPECT_TRUE(a == actual.end()) << "element " << a - actual.begin() << " of " << actual.size()
                                 << " is " << *a << ", not " << *e;
}

// 0, 1, fewer than ranks, as many, one more, odd, and several blocks in each chunk.
std::vector<std::uint64_t> counts(int size) {
  const auto ranks = static_cast<std::uint64_t>(size);
  return {0, 1, ranks - 1, ranks, ranks + 1, 1001, 4 * 65536 * ranks + 1001};
}

TEST(RingChunk, CutsWithoutGapAndNearlyEqually) {
  for (const int size : {1, 2, 3, 7}) {
    for (const std::uint64_t count :
         {std::uint64_t{0}, std::uint64_t{5}, std::uint64_t{1000}, (std::uint64_t{1} << 33) + 5}) {
      std::uint64_t end = 0;
      for (int rank = 0; rank < size; ++rank) {
        const Chunk chunk = ring_chunk(count, rank, size);
        EXPECT_EQ(chunk.begin, end);
        EXPECT_LE(chunk.end - chunk.begin, count / static_cast<unsigned>(size) + 1);
        EXPECT_GE(chunk.end - chunk.begin, count / static_cast<unsigned>(size));
        end = chunk.end;
      }
      EXPECT_EQ(end, count);
    }
  }
}

TEST(Collectives, TheInputsTellOrdersOfSummationApart) {
  EXPECT_NE(ring_sum({0, 1, 2}, 1000), ring_sum({1, 0, 2}, 1000));
  EXPECT_NE(ring_sum({0, 1, 2, 3}, 1000), ring_sum({3, 2, 1, 0}, 1000));
}

TEST(Collectives, TheRingSumsInItsDocumentedOrder) {
  for_each_size([](auto transport) {
    Workspace workspace;
    const Exec exec{.workspace = &workspace};
    for (const std::uint64_t count : counts(transport->size())) {
      std::vector<float> elements = gradient(transport->rank(), count);
      const std::uint64_t before = transport->bytes_sent();
      transport->Transport::all_reduce(exec, elements, ReduceOp::sum, soon());
      expect_same_bits(elements, ring_sum(first_ranks(transport->size()), count));
      // In the first half every chunk but the own one; in the second every chunk but the next
      // rank's.
      const auto left_out = [&](int chunk) {
        const Chunk c = ring_chunk(count, chunk, transport->size());
        return c.end - c.begin;
      };
      const int rank = transport->rank(), size = transport->size();
      if (size == 1) continue;
      EXPECT_EQ(transport->bytes_sent() - before,
                4 * (2 * count - left_out(rank) - left_out((rank + 1) % size)));
    }
  });
}

TEST(Collectives, ReduceScatterLeavesTheOwnChunk) {
  for_each_size([](auto transport) {
    Workspace workspace;
    const Exec exec{.workspace = &workspace};
    for (const std::uint64_t count : counts(transport->size())) {
      std::vector<float> elements = gradient(transport->rank(), count);
      transport->reduce_scatter(exec, elements, soon());
      const Chunk chunk = ring_chunk(count, transport->rank(), transport->size());
      const std::vector<float> sum = ring_sum(first_ranks(transport->size()), count);
      const std::uint64_t length = chunk.end - chunk.begin;
      expect_same_bits(std::span(elements).subspan(chunk.begin, length),
                       std::span(sum).subspan(chunk.begin, length));
    }
  });
}

// A native sum may take any order; the longest chain bounds its error.
TEST(Collectives, TheTransportsOwnSumIsClose) {
  for_each_size([](auto transport) {
    Workspace workspace;
    const Exec exec{.workspace = &workspace};
    const int size = transport->size();
    for (const std::uint64_t count : counts(size)) {
      std::vector<float> elements = gradient(transport->rank(), count);
      transport->all_reduce(exec, elements, ReduceOp::sum, soon());
      std::uint64_t wrong = 0;
      for (std::uint64_t i = 0; i < count; ++i) {
        double sum = 0, magnitude = 0;
        for (int rank = 0; rank < size; ++rank) {
          sum += static_cast<double>(element(static_cast<unsigned>(rank), i));
          magnitude += std::abs(static_cast<double>(element(static_cast<unsigned>(rank), i)));
        }
        if (std::abs(static_cast<double>(elements[i]) - sum) > size * std::ldexp(magnitude, -24))
          ++wrong;
      }
      EXPECT_EQ(wrong, 0u) << "of " << count;
    }
  });
}

TEST(Collectives, AllGatherConcatenatesInRankOrder) {
  for_each_size([](auto transport) {
    const auto ranks = static_cast<std::size_t>(transport->size());
    const auto value = [](int rank, std::size_t i) {
      return static_cast<std::byte>(static_cast<std::size_t>(rank) * 37 + i * 11 + (i >> 8));
    };
    for (const std::size_t bytes :
         std::initializer_list<std::size_t>{0, 1, 4, 4096, 4097, 1000003}) {
      std::vector<std::byte> mine(bytes), all(bytes * ranks), in_place(bytes * ranks), expected;
      for (int rank = 0; rank < transport->size(); ++rank)
        for (std::size_t i = 0; i < bytes; ++i) expected.push_back(value(rank, i));
      for (std::size_t i = 0; i < bytes; ++i) mine[i] = value(transport->rank(), i);
      transport->all_gather({}, mine, all, soon());
      EXPECT_TRUE(all == expected) << bytes << " bytes";
      const auto own =
          std::span(in_place).subspan(static_cast<std::size_t>(transport->rank()) * bytes, bytes);
      std::copy(mine.begin(), mine.end(), own.begin());
      transport->all_gather({}, own, in_place, soon());
      EXPECT_TRUE(in_place == expected) << bytes << " bytes in place";
    }
  });
}

TEST(Collectives, RefuseWrongArgumentsBeforeTheyCommunicate) {
  for_each_size([](auto transport) {
    std::vector<float> elements(10);
    std::vector<std::byte> mine(3), all(3 * static_cast<std::size_t>(transport->size()) + 1);
    Workspace workspace;
    const Exec device{.place = Place::cuda, .workspace = &workspace};
    EXPECT_THROW(transport->Transport::all_reduce({}, elements, ReduceOp::sum, soon()), UsageError);
    EXPECT_THROW(transport->reduce_scatter({}, elements, soon()), UsageError);
    EXPECT_THROW(transport->Transport::all_reduce(device, elements, ReduceOp::sum, soon()),
                 UsageError);
    EXPECT_THROW(transport->all_gather({}, mine, all, soon()), UsageError);
    EXPECT_EQ(transport->bytes_sent(), 0u);
  });
}

// A peer may still read a message of a rank that gave up, so what the ranks send and receive
// outlives their transports.
TEST(Collectives, ARingThatWaitsForAnAbsentRankEndsAtItsDeadline) {
  struct Buffers {
    Workspace workspace;
    std::vector<float> elements = std::vector<float>(300000);
  };
  for (const int ranks : tests::rank_counts()) {
    std::vector<Buffers> buffers(static_cast<std::size_t>(ranks));
    tests::run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      if (transport->size() == 1 || transport->rank() == 0) return;
      auto& [workspace, elements] = buffers[static_cast<std::size_t>(transport->rank())];
      EXPECT_THROW(
          transport->Transport::all_reduce({.workspace = &workspace}, elements, ReduceOp::sum,
                                           Deadline::after(std::chrono::milliseconds(50))),
          CommError);
    });
  }
}

// Sums over `members` of the transport, in that order; they include this rank.
void expect_subset_sums(Transport& transport, const std::vector<int>& members) {
  Workspace workspace;
  const Exec exec{.workspace = &workspace};
  const auto subset = transport.subset(members);
  EXPECT_EQ(subset->size(), static_cast<int>(members.size()));
  EXPECT_EQ(members[static_cast<std::size_t>(subset->rank())], transport.rank());
  EXPECT_EQ(subset->node(), transport.node());
  EXPECT_EQ(subset->sizes_travel(), transport.sizes_travel());
  for (const std::uint64_t count : counts(subset->size())) {
    std::vector<float> elements = gradient(transport.rank(), count);
    const std::uint64_t before = transport.bytes_sent(), here = subset->bytes_sent();
    subset->all_reduce(exec, elements, ReduceOp::sum, soon());
    expect_same_bits(elements, ring_sum(members, count));
    EXPECT_EQ(subset->bytes_sent() - here, transport.bytes_sent() - before);
  }
  std::vector<int> gathered(members.size());
  const int mine = transport.rank();
  subset->all_gather(exec, std::as_bytes(std::span(&mine, 1)),
                     std::as_writable_bytes(std::span(gathered)), soon());
  EXPECT_EQ(gathered, members);
}

TEST(Subset, OfEvenAndOddRanks) {
  for_each_size([](auto transport) {
    std::vector<int> members;
    for (int rank = transport->rank() % 2; rank < transport->size(); rank += 2)
      members.push_back(rank);
    expect_subset_sums(*transport, members);
  });
}

TEST(Subset, OfAllRanksInReverse) {
  for_each_size([](auto transport) {
    std::vector<int> members = first_ranks(transport->size());
    std::reverse(members.begin(), members.end());
    expect_subset_sums(*transport, members);
  });
}

TEST(Subset, OfASubset) {
  for_each_size([](auto transport) {
    std::vector<int> members = first_ranks(transport->size());
    std::rotate(members.begin(), members.begin() + 1, members.end());
    const auto rotated = transport->subset(members);
    if (rotated->rank() == 0) return;
    // `rotated` without its rank 0, which is rank 1 of the transport (or 0 if there is one rank).
    std::vector<int> rest = first_ranks(rotated->size());
    rest.erase(rest.begin());
    const auto subset = rotated->subset(rest);
    std::vector<float> elements = gradient(transport->rank(), 5000);
    Workspace workspace;
    subset->all_reduce({.workspace = &workspace}, elements, ReduceOp::sum, soon());
    members.erase(members.begin());
    expect_same_bits(elements, ring_sum(members, 5000));
  });
}

TEST(Subset, AbortReachesItsRanksAndNamesTheParents) {
  for_each_size([](auto transport) {
    std::vector<int> members = first_ranks(transport->size());
    std::reverse(members.begin(), members.end());
    const auto subset = transport->subset(members);
    if (subset->rank() == 0) {
      subset->abort("enough");
      return;
    }
    std::byte buffer{};
    subset->recv({&buffer, 1}, 0, nullptr);
    const Ticket ticket = subset->start({});
    try {
      subset->wait(ticket, Deadline::never());
      ADD_FAILURE() << "the wait returned";
    } catch (const CommError& error) {
      EXPECT_NE(std::string(error.what())
                    .find("rank " + std::to_string(transport->size() - 1) + " aborted: enough"),
                std::string::npos)
          << error.what();
    }
  });
}

TEST(Subset, RefusesWhatIsNoGroupOfThisRank) {
  for_each_size([](auto transport) {
    const int rank = transport->rank(), size = transport->size();
    EXPECT_THROW((void)transport->subset({}), UsageError);
    EXPECT_THROW((void)transport->subset(std::vector{rank, size}), UsageError);
    EXPECT_THROW((void)transport->subset(std::vector{rank, -1}), UsageError);
    EXPECT_THROW((void)transport->subset(std::vector{rank, rank}), UsageError);
    if (size > 1) {
      EXPECT_THROW((void)transport->subset(std::vector{(rank + 1) % size}), UsageError);
    }
    const auto alone = transport->subset(std::vector{rank});
    EXPECT_THROW(alone->send({}, 0), UsageError);
    EXPECT_THROW(alone->send({}, 1), UsageError);
  });
}

/// A transport whose ranks are on two nodes.
class TwoNodes final : public Transport {
 public:
  explicit TwoNodes(Transport& inner) : inner_(inner) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  int node() const override { return 100 - rank() % 2; }
  void send(std::span<const std::byte> message, int peer) override { inner_.send(message, peer); }
  void recv(std::span<std::byte> buffer, int peer, std::uint64_t* message_bytes) override {
    inner_.recv(buffer, peer, message_bytes);
  }
  Ticket start(const Exec& exec) override { return inner_.start(exec); }
  void wait(Ticket ticket, Deadline deadline) override { inner_.wait(ticket, deadline); }
  void abort(std::string_view reason) noexcept override { inner_.abort(reason); }

 private:
  Transport& inner_;
};

TEST(Discover, FindsWhichRanksShareANode) {
  for_each_size([](auto transport) {
    // All ranks of these tests run on one machine.
    EXPECT_EQ(discover(*transport, soon()), Topology::uniform(1, transport->size()));
    TwoNodes two_nodes(*transport);
    std::vector<int> node_of_rank;
    for (int rank = 0; rank < transport->size(); ++rank) node_of_rank.push_back(rank % 2);
    EXPECT_EQ(discover(two_nodes, soon()), Topology::from_nodes(node_of_rank));
  });
}

}  // namespace
}  // namespace winnow
