// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/exchange.hpp"

#include "comm/shards.hpp"

namespace winnow::comm {

void count_sent(Exchange& exchange, int peer, std::uint64_t bytes) {
  exchange.stats.wire_bytes += bytes;
  const bool stays = exchange.rails != nullptr && exchange.rails->on_node(peer);
  if (!stays) exchange.stats.network_bytes += bytes;
}

}  // namespace winnow::comm
