// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/gather.hpp"

#include "comm/pass_bytes.hpp"
#include "compress/stopwatch.hpp"

namespace winnow::comm {

using compress::Stopwatch;

std::uint64_t gather_wire_bytes(const CostShape& shape) {
  return static_cast<std::uint64_t>(shape.ranks - 1) *
         compress::message_bytes(shape.count, shape.k, shape.codings);
}

std::uint64_t gather_network_bytes(const CostShape& shape) {
  return all_to_all_network_bytes(shape, gather_wire_bytes(shape));
}

double gather_pass_bytes(const CostShape& shape) {
  return encode_pass(shape.count, shape.k) + add_pass(shape.count, shape.k, shape.ranks);
}

Rounds run_gather(Exchange& exchange) {
  Transport& world = exchange.world;
  Workspace& workspace = *exchange.exec.workspace;
  const compress::Part& part = exchange.part;
  const compress::Codings& codings = exchange.compressor.codings();
  const auto ranks = static_cast<std::size_t>(world.size());
  const auto self = static_cast<std::size_t>(world.rank());
  const auto size = compress::message_bytes(part.count, part.k, codings);
  const auto messages = workspace.take<std::span<std::byte>>(ranks);
  for (auto& message : messages) message = exchange.compressor.room(exchange.exec, size);
  {
    const Stopwatch watch(&exchange.stats.select_seconds, &exchange.stats.encode_seconds);
    compress::Outbox out{.messages = messages.subspan(self, 1)};
    exchange.compressor.encode(exchange.exec,
                               {.part = part,
                                .decay = exchange.decay,
                                .header = exchange.header,
                                .random = exchange.random,
                                .encode_seconds = &exchange.stats.encode_seconds},
                               out);
    exchange.own = out.messages;
    exchange.stats.kept += out.kept;
  }

  const auto received = workspace.take<std::uint64_t>(ranks);
  {
    const Stopwatch watch(exchange.stats.exchange_seconds);
    for (std::size_t step = 1; step < ranks; ++step) {
      const std::size_t to = (self + step) % ranks, from = (self + ranks - step) % ranks;
      world.send(messages[self], static_cast<int>(to));
      world.recv(messages[from], static_cast<int>(from), &received[from]);
      count_sent(exchange, static_cast<int>(to), messages[self].size());
    }
  }
  co_await world.start(exchange.exec);

  const Stopwatch watch(exchange.stats.add_seconds);
  received[self] = messages[self].size();
  const auto views = workspace.take<compress::MessageView>(ranks);
  for (std::size_t sender = 0; sender < ranks; ++sender) {
    views[sender] =
        exchange.compressor.open(exchange.exec, messages[sender].first(received[sender]),
                                 part.expect(exchange.header), static_cast<int>(sender));
    exchange.poisoned |= (views[sender].header.flags & compress::Header::kPoison) != 0;
  }
  exchange.messages = views;
  compress::name_codings(views[self].header, exchange.stats.coding);
}

}  // namespace winnow::comm
