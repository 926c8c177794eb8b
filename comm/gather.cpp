// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/gather.hpp"

#include <algorithm>

#include "comm/stopwatch.hpp"
#include "compress/index_coding.hpp"

namespace winnow::comm {

std::uint64_t gather_wire_bytes(const CostShape& shape) {
  return static_cast<std::uint64_t>(shape.ranks - 1) * shape.message_bytes;
}

void run_gather(Exchange& exchange) {
  Transport& world = exchange.world;
  Workspace& workspace = *exchange.exec.workspace;
  const int ranks = world.size();
  const auto size = compress::message_bytes(exchange.part.count, exchange.part.k);
  const auto messages = workspace.take<std::span<std::byte>>(static_cast<std::size_t>(ranks));
  for (auto& message : messages) message = workspace.take<std::byte>(size);
  const auto own = messages[static_cast<std::size_t>(world.rank())];
  {
    const Stopwatch watch(exchange.stats.select_seconds);
    exchange.compressor.encode(exchange.exec, exchange.decay, exchange.part, exchange.header, own);
    exchange.own = own;
  }

  const auto received = workspace.take<std::uint64_t>(static_cast<std::size_t>(ranks));
  {
    const Stopwatch watch(exchange.stats.exchange_seconds);
    for (int step = 1; step < ranks; ++step) {
      const int to = (world.rank() + step) % ranks;
      const int from = (world.rank() + ranks - step) % ranks;
      world.send(own, to);
      world.recv(messages[static_cast<std::size_t>(from)], from,
                 &received[static_cast<std::size_t>(from)]);
    }
    world.wait(world.start(exchange.exec), exchange.deadline);
  }

  const Stopwatch watch(exchange.stats.add_seconds);
  received[static_cast<std::size_t>(world.rank())] = size;
  const auto views = workspace.take<compress::MessageView>(static_cast<std::size_t>(ranks));
  for (int sender = 0; sender < ranks; ++sender) {
    const auto i = static_cast<std::size_t>(sender);
    views[i] =
        compress::open(exchange.exec, messages[i].first(received[i]), exchange.header, sender);
    exchange.poisoned |= (views[i].header.flags & compress::Header::kPoison) != 0;
  }
  const compress::Header& own_header = views[static_cast<std::size_t>(world.rank())].header;
  exchange.messages = views;
  exchange.stats.coding = compress::index_coding_name(own_header.index_coding);
  exchange.stats.coding += ",float32";
  exchange.stats.kept += exchange.part.k;
  exchange.stats.wire_bytes += gather_wire_bytes({ranks, exchange.part.count, size});
}

}  // namespace winnow::comm
