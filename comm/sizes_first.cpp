// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/sizes_first.hpp"

#include <memory>
#include <string>
#include <winnow/error.hpp>

#include "comm/exchange.hpp"
#include "comm/size_words.hpp"
#include "compress/stopwatch.hpp"

namespace winnow::comm {
namespace {

bool on_host(const Exchange& exchange) {
  return exchange.exec.place != Place::cuda;
}

}  // namespace

std::span<std::byte> SizesFirst::size_bytes(Message& message) {
  return std::as_writable_bytes(std::span(&message.size, 1));
}

SizesFirst::Message& SizesFirst::add(Exchange& exchange, const Message& message) {
  Message* const added =
      std::construct_at(exchange.exec.workspace->take<Message>(1).data(), message);
  (first_ == nullptr ? first_ : last_->next) = added;
  last_ = added;
  added->word = on_host(exchange) ? size_bytes(*added) : take_size_word(exchange.exec);
  return *added;
}

void SizesFirst::send(Exchange& exchange, std::span<const std::byte> message, int peer) {
  Message& added = add(exchange, {.sent = message,
                                  .room = {},
                                  .bytes = nullptr,
                                  .size = message.size(),
                                  .word = {},
                                  .peer = peer,
                                  .next = nullptr});
  if (!on_host(exchange)) copy_size_word(exchange.exec, added.word, size_bytes(added));
  exchange.world.send(added.word, peer);
  count_sent(exchange, peer, sizeof added.size);
}

void SizesFirst::receive(Exchange& exchange, std::span<std::byte> room, int peer,
                         std::uint64_t* bytes) {
  const Message& added = add(exchange, {.sent = {},
                                        .room = room,
                                        .bytes = bytes,
                                        .size = 0,
                                        .word = {},
                                        .peer = peer,
                                        .next = nullptr});
  exchange.world.recv(added.word, peer, nullptr);
}

/// Brings the sizes that came to the host.
void SizesFirst::fetch(Exchange& exchange) {
  if (on_host(exchange)) return;
  for (Message* message = first_; message != nullptr; message = message->next) {
    if (message->bytes != nullptr) {
      copy_size_word(exchange.exec, size_bytes(*message), message->word);
    }
  }
  await_size_words(exchange.exec, exchange.world, exchange.deadline);
}

Ticket SizesFirst::follow(Exchange& exchange) {
  const compress::Stopwatch watch(exchange.stats.exchange_seconds);
  Transport& world = exchange.world;
  fetch(exchange);
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
