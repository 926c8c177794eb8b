// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "examples/skeleton/ring.hpp"

namespace winnow::comm {

namespace {

using compress::Header;

/// The last rank of a node sends all its messages to the next node.
std::uint64_t network_bytes(const CostShape& shape) {
  const bool one_node = shape.topology != nullptr && shape.topology->nodes() == 1;
  return one_node ? 0 : bytes_to_each_other(shape);
}

/// Bytes of one message from each rank.
std::uint64_t outcome_bytes(const CostShape& shape) {
  return static_cast<std::uint64_t>(shape.ranks) *
         compress::message_bytes(shape.count, shape.k, shape.codings);
}

/// An all-gather of messages around a ring: in each of P - 1 rounds a rank sends to the next rank
/// what came last from the one before, its own message first. All add messages in rank order, so
/// position i sums as ((0 + m[0][i]) + m[1][i]) + ..., as in `gather`, which has one round and
/// sends to all ranks at once. This one serves buckets in host memory: gather.cpp shows what calls
/// do that a stream orders.
Rounds run(Exchange& exchange) {
  Transport& world = exchange.wire.world;
  const auto ranks = static_cast<std::size_t>(exchange.wire.ranks);
  const auto self = static_cast<std::size_t>(exchange.wire.rank);
  const compress::Shape& shape = exchange.part.shapes.gradients.front();
  const auto messages = take_buffers(exchange, [&](std::uint32_t) { return shape.bytes(); });
  const auto [views, received, incoming] =
      exchange.exec.workspace
          ->take<compress::MessageView, std::uint64_t, compress::ReceivedMessage>(ranks);

  encode_gradient(exchange, Header::Kind::gradient, messages.subspan(self, 1));
  if (needs_counts(exchange, Header::Kind::gradient)) {  // the transport tells nobody a size
    Counts bytes = count_bytes(exchange, messages);
    co_await exchange_counts(bytes);
    cut_to(exchange, bytes, messages);
  }
  received[self] = messages[self].size();
  const std::size_t next = (self + 1) % ranks, previous = (self + ranks - 1) % ranks;
  for (std::size_t round = 0; round + 1 < ranks; ++round) {
    const std::size_t out = (self + ranks - round) % ranks, in = (out + ranks - 1) % ranks;
    send(exchange, messages[out].first(received[out]), static_cast<int>(next));
    world.recv(messages[in], static_cast<int>(previous), &received[in]);
    co_await world.start(exchange.exec);
  }

  for (std::size_t sender = 0; sender < ranks; ++sender) {
    incoming[sender] = {messages[sender].first(received[sender]),
                        exchange.compressor.expect(exchange.header, shape),
                        exchange.wire.name_of(sender)};
  }
  exchange.result.poisoned |= decode(exchange, incoming, views);
  exchange.result.outcome = Terms{views};
  exchange.undo = Decoded{views.subspan(self, 1)};
  name_codings(exchange, views[self].header);
}

}  // namespace

constinit const Schedule kRing{
    .name = "ring_gather",  // `ring` is another name of `dense`
    .summary = "all-gather of messages around a ring, added in rank order",
    .run = run,
    .costs = {.wire_bytes = bytes_to_each_other,
              .messages = one_to_each_other,
              .pass_bytes = encode_and_add_pass,
              .network_bytes = network_bytes,
              .outcome_bytes = outcome_bytes},
};

}  // namespace winnow::comm
