// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// What every transport promises about collectives and subsets; their inputs, and discover().
#include <gtest/gtest.h>

#include <vector>
#include <winnow/conformance/transport.hpp>
#include <winnow/topology.hpp>

#include "tests/harness/ranks_world.hpp"

namespace winnow {
namespace {

using conformance::Rank;
using conformance::soon;

const bool kRegistered =
    conformance::register_checks("Collectives", conformance::kCollectives, tests::ranks_world());

void for_each_size(const std::function<void(Rank&)>& body) {
  conformance::for_each_size(tests::ranks_world(), body);
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
  using conformance::ring_sum;
  EXPECT_NE(ring_sum({0, 1, 2}, 1000), ring_sum({1, 0, 2}, 1000));
  EXPECT_NE(ring_sum({0, 1, 2, 3}, 1000), ring_sum({3, 2, 1, 0}, 1000));
}

// Their messages are the parent's, so both count them.
TEST(Collectives, ASubsetCountsBytesWithItsParent) {
  for_each_size([](Rank& rank) {
    Transport& transport = rank.transport();
    const std::uint64_t before = transport.bytes_sent();
    const auto subset = transport.subset(conformance::first_ranks(rank.size()));
    conformance::exchange_all(rank.over(*subset), {100, 0, 1000});
    EXPECT_EQ(subset->bytes_sent(), 1100U * static_cast<unsigned>(rank.size() - 1));
    EXPECT_EQ(subset->bytes_sent(), transport.bytes_sent() - before);
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
  void abort(std::string_view reason, FailureKind kind) noexcept override {
    inner_.abort(reason, kind);
  }

 private:
  Transport& inner_;
};

TEST(Discover, FindsWhichRanksShareANode) {
  for_each_size([](Rank& self) {
    Transport* const transport = &self.transport();
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
