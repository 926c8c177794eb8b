// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/exchange.hpp"

#include <algorithm>

#include "comm/shards.hpp"
#include "compress/stopwatch.hpp"

namespace winnow::comm {

using compress::Header;
using compress::Stopwatch;

void count_sent(Exchange& exchange, int peer, std::uint64_t bytes) {
  exchange.stats.wire_bytes += bytes;
  const bool stays = exchange.rails != nullptr && exchange.rails->on_node(peer);
  if (!stays) exchange.stats.network_bytes += bytes;
}

bool encode_gradient(Exchange& exchange, Header::Kind kind,
                     std::span<std::span<std::byte>> messages) {
  Stats& stats = exchange.stats;
  const Stopwatch watch(&stats.select_seconds, &stats.encode_seconds);
  Header header = exchange.header;
  header.kind = kind;
  compress::Outbox out{.messages = messages};
  exchange.compressor.encode(exchange.exec,
                             {.part = exchange.part,
                              .decay = exchange.decay,
                              .header = header,
                              .random = exchange.random,
                              .encode_seconds = &stats.encode_seconds},
                             out);
  exchange.own = out.messages;
  exchange.owned = out.owned;
  stats.kept += out.kept;
  return out.finite;
}

void enqueue_all_to_all(Exchange& exchange, Messages out, Messages in,
                        std::span<std::uint64_t> received) {
  const Stopwatch watch(exchange.stats.exchange_seconds);
  Transport& world = exchange.world;
  const auto ranks = static_cast<std::size_t>(world.size());
  const auto self = static_cast<std::size_t>(world.rank());
  received[self] = in[self].size();
  for (std::size_t step = 1; step < ranks; ++step) {
    const std::size_t to = (self + step) % ranks, from = (self + ranks - step) % ranks;
    world.send(out[to], static_cast<int>(to));
    world.recv(in[from], static_cast<int>(from), &received[from]);
    count_sent(exchange, static_cast<int>(to), out[to].size());
  }
}

void enqueue_all_gather(Exchange& exchange, Messages messages, std::span<std::uint64_t> received) {
  const auto out = exchange.exec.workspace->take<std::span<std::byte>>(messages.size());
  std::ranges::fill(out, messages[static_cast<std::size_t>(exchange.world.rank())]);
  enqueue_all_to_all(exchange, out, messages, received);
}

}  // namespace winnow::comm
