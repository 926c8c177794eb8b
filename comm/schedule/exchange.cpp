// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/schedule/exchange.hpp"

#include <algorithm>
#include <string>
#include <winnow/error.hpp>

#include "comm/schedule/shards.hpp"
#include "compress/partial.hpp"
#include "kernels/exec/stopwatch.hpp"

namespace winnow::comm {

using compress::Header;
using kernels::Stopwatch;

void count_sent(Exchange& exchange, int peer, std::uint64_t bytes) {
  exchange.stats.wire_bytes += bytes;
  const bool stays = exchange.rails != nullptr && exchange.rails->on_node(peer);
  if (!stays) exchange.stats.network_bytes += bytes;
}

MessageSize message_size(const Exchange& exchange, Header::Kind kind) {
  if (exchange.compressor.variable_k()) return MessageSize::open;
  // With other compressors the support decides how many elements an owner gets and a union has.
  const bool by_support = kind == Header::Kind::contribution || kind == Header::Kind::partial;
  return by_support && !exchange.compressor.knows_support() ? MessageSize::open
                                                            : MessageSize::fixed;
}

bool tells_counts(const Exchange& exchange, Header::Kind kind) {
  return message_size(exchange, kind) == MessageSize::open && !exchange.part.variable_k &&
         !exchange.world.sizes_travel();
}

compress::Expected expect_told(const Exchange& exchange, const Header& most,
                               std::uint64_t elements, int sender) {
  if (elements > most.k) {
    throw CommError("rank " + std::to_string(sender) + " says that its sum has " +
                    std::to_string(elements) + " elements, where " + std::to_string(most.k) +
                    " are the most");
  }
  const auto [k, shape] =
      compress::shortest_partial(most.count, elements, exchange.compressor.codings());
  return compress::Expected::told(most, k, shape);
}

void send(Exchange& exchange, std::span<const std::byte> message, int peer, MessageSize size) {
  if (size == MessageSize::open && !exchange.world.sizes_travel()) {
    exchange.sizes_first.send(exchange, message, peer);
    return;
  }
  exchange.world.send(message, peer);
  count_sent(exchange, peer, message.size());
}

void receive(Exchange& exchange, std::span<std::byte> buffer, int peer, std::uint64_t* bytes,
             MessageSize size) {
  if (size == MessageSize::open && !exchange.world.sizes_travel()) {
    exchange.sizes_first.receive(exchange, buffer, peer, bytes);
  } else {
    exchange.world.recv(buffer, peer, bytes);
  }
}

namespace {

compress::EncodeJob job_of(Exchange& exchange, Header::Kind kind) {
  compress::EncodeJob job{.part = exchange.part,
                          .decay = exchange.decay,
                          .header = exchange.header,
                          .random = exchange.random,
                          .encode_seconds = &exchange.stats.encode_seconds,
                          .status = exchange.status};
  job.header.kind = kind;
  return job;
}

compress::EncodeResult result_of(const Exchange& exchange,
                                 std::span<std::span<std::byte>> messages) {
  compress::EncodeResult out{.messages = messages, .owned = exchange.owned};
  if (exchange.status != nullptr) {  // to put them back, nobody opens them and waits for the device
    out.opened = exchange.exec.workspace->take<compress::MessageView>(messages.size());
  }
  return out;
}

void keep_messages(Exchange& exchange, const compress::EncodeResult& out) {
  exchange.own = out.messages;
  exchange.owned = out.owned;
  exchange.opened = out.opened;
}

}  // namespace

void encode_gradient(Exchange& exchange, Header::Kind kind,
                     std::span<std::span<std::byte>> messages) {
  const Stopwatch watch(&exchange.stats.select_seconds, &exchange.stats.encode_seconds);
  compress::EncodeResult out = result_of(exchange, messages);
  exchange.compressor.encode(exchange.exec, job_of(exchange, kind), out);
  keep_messages(exchange, out);
  exchange.stats.kept += out.kept;
}

void choose_gradient(Exchange& exchange) {
  const Stopwatch watch(&exchange.stats.select_seconds, &exchange.stats.encode_seconds);
  compress::EncodeResult out;
  exchange.chosen =
      exchange.compressor.choose(exchange.exec, job_of(exchange, Header::Kind::contribution), out);
  exchange.owned = out.owned;
  exchange.stats.kept += out.kept;
}

void encode_chosen(Exchange& exchange, Header::Kind kind,
                   std::span<std::span<std::byte>> messages) {
  const Stopwatch watch(exchange.stats.encode_seconds);
  compress::EncodeResult out = result_of(exchange, messages);
  exchange.compressor.encode_chosen(exchange.exec, job_of(exchange, kind), exchange.chosen, out);
  keep_messages(exchange, out);
  exchange.chosen = {};
}

void enqueue_all_to_all(Exchange& exchange, Messages out, Messages in,
                        std::span<std::uint64_t> received, MessageSize size) {
  const Stopwatch watch(exchange.stats.exchange_seconds);
  const auto ranks = static_cast<std::size_t>(exchange.world.size());
  const auto self = static_cast<std::size_t>(exchange.world.rank());
  received[self] = in[self].size();
  for (std::size_t step = 1; step < ranks; ++step) {
    const std::size_t to = (self + step) % ranks, from = (self + ranks - step) % ranks;
    send(exchange, out[to], static_cast<int>(to), size);
    receive(exchange, in[from], static_cast<int>(from), &received[from], size);
  }
}

void enqueue_all_gather(Exchange& exchange, Messages messages, std::span<std::uint64_t> received,
                        MessageSize size) {
  const auto out = exchange.exec.workspace->take<std::span<std::byte>>(messages.size());
  std::ranges::fill(out, messages[static_cast<std::size_t>(exchange.world.rank())]);
  enqueue_all_to_all(exchange, out, messages, received, size);
}

Slots take_slots(const Exchange& exchange, std::size_t message_bytes) {
  constexpr std::size_t kSlotAlignment = 64;  // of each: a cache line; NCCL is slow below 16
  const auto ranks = static_cast<std::size_t>(exchange.world.size());
  const std::size_t slot_bytes =
      (message_bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
  const std::span<std::byte> memory = take_buffer(exchange, ranks * slot_bytes);
  const auto messages = exchange.exec.workspace->take<std::span<std::byte>>(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    messages[rank] = memory.subspan(rank * slot_bytes, message_bytes);
  }
  return {memory, message_bytes, messages};
}

void enqueue_all_gather(Exchange& exchange, const Slots& slots, std::span<std::uint64_t> received,
                        MessageSize size) {
  if (size == MessageSize::open) {
    enqueue_all_gather(exchange, slots.messages, received, size);
    return;
  }
  const Stopwatch watch(exchange.stats.exchange_seconds);
  Transport& world = exchange.world;
  world.enqueue_all_gather(slots.memory, slots.message_bytes, received);
  for (int peer = 0; peer < world.size(); ++peer) {
    if (peer != world.rank()) count_sent(exchange, peer, slots.message_bytes);
  }
}

}  // namespace winnow::comm
