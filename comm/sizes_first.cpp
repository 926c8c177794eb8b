// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/sizes_first.hpp"

#include <memory>
#include <string>
#include <winnow/error.hpp>

#include "comm/exchange.hpp"
#include "compress/stopwatch.hpp"

namespace winnow::comm {

SizesFirst::Message& SizesFirst::add(Exchange& exchange, const Message& message) {
  Message* const added =
      std::construct_at(exchange.exec.workspace->take<Message>(1).data(), message);
  (first_ == nullptr ? first_ : last_->next) = added;
  last_ = added;
  return *added;
}

void SizesFirst::send(Exchange& exchange, std::span<const std::byte> message, int peer) {
  const Message& added = add(exchange, {.sent = message,
                                        .room = {},
                                        .bytes = nullptr,
                                        .size = message.size(),
                                        .peer = peer,
                                        .next = nullptr});
  exchange.world.send(std::as_bytes(std::span(&added.size, 1)), peer);
  count_sent(exchange, peer, sizeof added.size);
}

void SizesFirst::receive(Exchange& exchange, std::span<std::byte> room, int peer,
                         std::uint64_t* bytes) {
  Message& added =
      add(exchange,
          {.sent = {}, .room = room, .bytes = bytes, .size = 0, .peer = peer, .next = nullptr});
  exchange.world.recv(std::as_writable_bytes(std::span(&added.size, 1)), peer, nullptr);
}

Ticket SizesFirst::follow(Exchange& exchange) {
  const compress::Stopwatch watch(exchange.stats.exchange_seconds);
  Transport& world = exchange.world;
  for (const Message* message = first_; message != nullptr; message = message->next) {
    if (message->bytes == nullptr) {
      world.send(message->sent, message->peer);
      count_sent(exchange, message->peer, message->sent.size());
      continue;
    }
    if (message->size > message->room.size()) {
      throw CommError("rank " + std::to_string(message->peer) + " has a message of " +
                      std::to_string(message->size) + " bytes for rank " +
                      std::to_string(world.rank()) + ", longer than its buffer of " +
                      std::to_string(message->room.size()));
    }
    *message->bytes = message->size;
    world.recv(message->room.first(message->size), message->peer, message->bytes);
  }
  first_ = last_ = nullptr;
  return world.start(exchange.exec);
}

}  // namespace winnow::comm
