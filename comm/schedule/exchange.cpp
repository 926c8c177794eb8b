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

bool has_open_size(const Exchange& exchange, Header::Kind kind) {
  if (exchange.compressor.variable_k()) return true;
  // With other compressors the support decides how many elements an owner gets and a union has.
  const bool by_support = kind == Header::Kind::contribution || kind == Header::Kind::partial;
  return by_support && !exchange.compressor.knows_support();
}

bool needs_counts(const Exchange& exchange, Header::Kind kind) {
  return has_open_size(exchange, kind) && !exchange.world.sizes_travel();
}

compress::Expected expect_told(const Exchange& exchange, const Header& most,
                               std::uint64_t elements) {
  const compress::Codings& codings = exchange.compressor.codings();
  if (most.kind != Header::Kind::partial) {
    return compress::Expected::told(most, elements,
                                    compress::shape_of(most.count, elements, codings));
  }
  const auto [k, shape] = compress::shortest_partial(most.count, elements, codings);
  return compress::Expected::told(most, k, shape);
}

void send(Exchange& exchange, std::span<const std::byte> message, int peer) {
  exchange.world.send(message, peer);
  count_sent(exchange, peer, message.size());
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

namespace {

/// Calls each(to, from) with the peers of a rank, in the order of its messages.
template <class Each>
void for_each_peer(const Exchange& exchange, const Each& each) {
  const auto ranks = static_cast<std::size_t>(exchange.world.size());
  const auto self = static_cast<std::size_t>(exchange.world.rank());
  for (std::size_t step = 1; step < ranks; ++step) {
    each((self + step) % ranks, (self + ranks - step) % ranks);
  }
}

/// A list of messages that are all messages[self].
Messages one_for_all(const Exchange& exchange, Messages messages) {
  const auto out = exchange.exec.workspace->take<std::span<std::byte>>(messages.size());
  std::ranges::fill(out, messages[static_cast<std::size_t>(exchange.world.rank())]);
  return out;
}

}  // namespace

void enqueue_all_to_all(Exchange& exchange, Messages out, Messages in,
                        std::span<std::uint64_t> received) {
  const Stopwatch watch(exchange.stats.exchange_seconds);
  const auto self = static_cast<std::size_t>(exchange.world.rank());
  received[self] = in[self].size();
  for_each_peer(exchange, [&](std::size_t to, std::size_t from) {
    send(exchange, out[to], static_cast<int>(to));
    exchange.world.recv(in[from], static_cast<int>(from), &received[from]);
  });
}

void enqueue_all_gather(Exchange& exchange, Messages messages, std::span<std::uint64_t> received) {
  enqueue_all_to_all(exchange, one_for_all(exchange, messages), messages, received);
}

Counts count_bytes(Exchange& exchange, Messages out, Messages in) {
  Counts counts(exchange, "bytes", out.size());
  for_each_peer(exchange, [&](std::size_t to, std::size_t from) {
    counts.send(counts.word_of(out[to].size()), static_cast<int>(to));
    counts.receive(static_cast<int>(from), in[from].size());
  });
  return counts;
}

Counts count_bytes(Exchange& exchange, Messages messages) {
  return count_bytes(exchange, one_for_all(exchange, messages), messages);
}

void cut_to(const Exchange& exchange, const Counts& bytes, std::span<std::span<std::byte>> in) {
  auto count = bytes.theirs().begin();
  for_each_peer(exchange, [&](std::size_t, std::size_t from) { in[from] = in[from].first(*count++); });
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

void enqueue_all_gather(Exchange& exchange, const Slots& slots, std::span<std::uint64_t> received) {
  const Stopwatch watch(exchange.stats.exchange_seconds);
  Transport& world = exchange.world;
  world.enqueue_all_gather(slots.memory, slots.message_bytes, received);
  for (int peer = 0; peer < world.size(); ++peer) {
    if (peer != world.rank()) count_sent(exchange, peer, slots.message_bytes);
  }
}

}  // namespace winnow::comm
