// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/schedule/sizes_first.hpp"

#include <memory>
#include <string>
#include <winnow/error.hpp>

#include "comm/schedule/exchange.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/stopwatch.hpp"

namespace winnow::comm {
namespace {

/// Whether the host's word is not the one that travels.
bool has_copy(const SizeWord& word) {
  return word.travels.data() != reinterpret_cast<const std::byte*>(word.size);
}

SizeWord take_word(const Exchange& exchange) {
  if (kernels::reading_waits(exchange.exec)) return take_size_word(exchange.exec);
  const auto size = exchange.exec.workspace->take<std::uint64_t>(1);
  return {.size = size.data(), .travels = std::as_writable_bytes(size)};
}

}  // namespace

const SizesFirst::Message& SizesFirst::add(Exchange& exchange, const Message& message) {
  Message* const added =
      std::construct_at(exchange.exec.workspace->take<Message>(1).data(), message);
  (first_ == nullptr ? first_ : last_->next) = added;
  last_ = added;
  added->word = take_word(exchange);
  return *added;
}

void SizesFirst::send(Exchange& exchange, std::span<const std::byte> message, int peer) {
  const SizeWord word =
      add(exchange, {.sent = message, .buffer = {}, .bytes = nullptr, .peer = peer}).word;
  *word.size = message.size();
  if (has_copy(word)) copy_to_device(exchange.exec, word);
  exchange.world.send(word.travels, peer);
  count_sent(exchange, peer, word.travels.size());
}

void SizesFirst::receive(Exchange& exchange, std::span<std::byte> buffer, int peer,
                         std::uint64_t* bytes) {
  const SizeWord word =
      add(exchange, {.sent = {}, .buffer = buffer, .bytes = bytes, .peer = peer}).word;
  exchange.world.recv(word.travels, peer, nullptr);
}

/// Brings the received sizes to the host.
void SizesFirst::fetch(Exchange& exchange) {
  if (!has_copy(first_->word)) return;
  for (const Message* message = first_; message != nullptr; message = message->next) {
    if (message->bytes != nullptr) copy_to_host(exchange.exec, message->word);
  }
  await_size_words(exchange.exec, exchange.world, exchange.deadline);
}

Ticket SizesFirst::follow(Exchange& exchange) {
  const kernels::Stopwatch watch(exchange.stats.exchange_seconds);
  Transport& world = exchange.world;
  fetch(exchange);
  for (const Message* message = first_; message != nullptr; message = message->next) {
    if (message->bytes == nullptr) {
      world.send(message->sent, message->peer);
      count_sent(exchange, message->peer, message->sent.size());
      continue;
    }
    const std::uint64_t size = *message->word.size;
    if (size > message->buffer.size()) {
      const auto name = [&](int rank) {
        return "rank " + std::to_string(exchange.name_of(static_cast<std::size_t>(rank)));
      };
      throw CommError(name(message->peer) + " has a message of " + std::to_string(size) +
                      " bytes for " + name(world.rank()) + ", longer than its buffer of " +
                      std::to_string(message->buffer.size()));
    }
    *message->bytes = size;
    world.recv(message->buffer.first(size), message->peer, message->bytes);
  }
  first_ = last_ = nullptr;
  return world.start(exchange.exec);
}

}  // namespace winnow::comm
