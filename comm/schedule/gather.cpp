// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "comm/schedule/schedule.hpp"
#include "kernels/exec/stopwatch.hpp"

namespace winnow::comm {

namespace {

using compress::Header;
using kernels::Stopwatch;

/// Decodes all messages but the own one, which encode has decoded.
void decode_others(Exchange& exchange, std::span<compress::ReceivedMessage> incoming,
                   std::size_t self_rank, std::span<compress::MessageView> views) {
  const auto self = static_cast<std::ptrdiff_t>(self_rank);
  std::copy(incoming.begin() + self + 1, incoming.end(), incoming.begin() + self);
  const auto others = exchange.exec.workspace->take<compress::MessageView>(views.size() - 1);
  (void)decode(exchange, incoming.first(others.size()), others);
  std::copy_n(others.begin(), self_rank, views.begin());
  std::copy(others.begin() + self, others.end(), views.begin() + self + 1);
}

/// Bytes of one message from each rank.
std::uint64_t outcome_bytes(const CostShape& shape) {
  return static_cast<std::uint64_t>(shape.ranks) *
         compress::message_bytes(shape.count, shape.k, shape.codings);
}

/// Every rank sends its message to every other rank; all add messages in rank order, so position i
/// sums as ((0 + m[0][i]) + m[1][i]) + ... One round; rank r sends to r+1, r+2, ... first, so that
/// no rank is everybody's first target.
Rounds run(Exchange& exchange) {
  Transport& world = exchange.wire.world;
  Workspace& workspace = *exchange.exec.workspace;
  const compress::Part& part = exchange.part;
  const auto ranks = static_cast<std::size_t>(exchange.wire.ranks);
  const auto self = static_cast<std::size_t>(exchange.wire.rank);
  const compress::Shape& shape = part.shapes.gradients.front();
  const Slots slots = take_slots(exchange, shape.bytes());
  const auto messages = slots.messages;
  const auto [views, received, incoming] =
      workspace.take<compress::MessageView, std::uint64_t, compress::ReceivedMessage>(ranks);
  const bool stream_ordered = exchange.course.status != nullptr;
  encode_gradient(exchange, Header::Kind::gradient, messages.subspan(self, 1));
  if (needs_counts(exchange, Header::Kind::gradient)) {
    Counts bytes = count_bytes(exchange, messages);
    co_await exchange_counts(bytes);
    cut_to(exchange, bytes, messages);
  }
  if (has_open_size(exchange, Header::Kind::gradient)) {
    enqueue_all_gather(exchange, messages, received);
  } else {
    enqueue_all_gather(exchange, slots, received);
  }
  co_await world.start(exchange.exec);

  const Stopwatch watch(exchange.wire.stats.add_seconds);
  for (std::size_t sender = 0; sender < ranks; ++sender) {
    incoming[sender] = {messages[sender].first(received[sender]),
                        exchange.compressor.expect(exchange.header, shape),
                        exchange.wire.name_of(sender)};
  }
  if (stream_ordered) {
    views[self] = std::get<Decoded>(exchange.undo).messages.front();
    decode_others(exchange, incoming, self, views);
  } else {
    exchange.result.poisoned |= decode(exchange, incoming, views);
  }
  exchange.result.outcome = Terms{views};
  exchange.undo = Decoded{views.subspan(self, 1)};
  name_codings(exchange, views[self].header);
}

}  // namespace

constinit const Schedule kGather{
    .name = "gather",
    .summary = "all-gather of messages, added in rank order",
    .run = run,
    .costs = {.wire_bytes = bytes_to_each_other,
              .messages = one_to_each_other,
              .pass_bytes = encode_and_add_pass,
              .outcome_bytes = outcome_bytes},
};

}  // namespace winnow::comm
