// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/gather.hpp"

#include "comm/pass_bytes.hpp"
#include "compress/stopwatch.hpp"

namespace winnow::comm {

using compress::Header;
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
  const auto ranks = static_cast<std::size_t>(world.size());
  const auto self = static_cast<std::size_t>(world.rank());
  const auto size = compress::message_bytes(part.count, part.k, exchange.compressor.codings());
  const auto messages = rooms(exchange, [size](std::uint32_t) { return size; });
  (void)encode_gradient(exchange, Header::Kind::gradient, messages.subspan(self, 1));
  const auto received = workspace.take<std::uint64_t>(ranks);
  enqueue_all_gather(exchange, messages, received, message_size(exchange, Header::Kind::gradient));
  co_await world.start(exchange.exec);

  const Stopwatch watch(exchange.stats.add_seconds);
  const auto incoming = workspace.take<compress::Incoming>(ranks);
  for (std::size_t sender = 0; sender < ranks; ++sender) {
    incoming[sender] = {messages[sender].first(received[sender]), part.expect(exchange.header),
                        static_cast<int>(sender)};
  }
  const auto views = workspace.take<compress::MessageView>(ranks);
  if (exchange.verdict != nullptr) {
    exchange.compressor.open_unseen(exchange.exec, incoming, views, *exchange.verdict);
  } else {
    const std::uint16_t flags = exchange.compressor.open_all(exchange.exec, incoming, views);
    exchange.poisoned |= (flags & Header::kPoison) != 0;
  }
  exchange.messages = views;
  exchange.opened = views.subspan(self, 1);
  compress::name_codings(views[self].header, exchange.stats.coding);
}

}  // namespace winnow::comm
