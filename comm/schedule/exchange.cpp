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

std::span<const compress::MessageView> messages_of(const Exchange& exchange) {
  const Terms* const terms = std::get_if<Terms>(&exchange.result.outcome);
  return terms != nullptr ? terms->messages : std::get<OwnerSums>(exchange.result.outcome).messages;
}

std::span<float> sum_of(const Exchange& exchange) {
  return std::get<WholeSum>(exchange.result.outcome).sum;
}

void count_sent(const Wire& wire, const Rails* rails, int peer, std::uint64_t bytes) {
  wire.stats.wire_bytes += bytes;
  const bool stays = rails != nullptr && rails->on_node(peer);
  if (!stays) wire.stats.network_bytes += bytes;
}

bool has_open_size(const Exchange& exchange, Header::Kind kind) {
  if (exchange.compressor.variable_k()) return true;
  // With other compressors the support decides how many elements an owner gets and a union has.
  const bool by_support = kind == Header::Kind::contribution || kind == Header::Kind::partial;
  return by_support && !exchange.compressor.knows_support();
}

bool needs_counts(const Exchange& exchange, Header::Kind kind) {
  return has_open_size(exchange, kind) && !exchange.wire.world.sizes_travel();
}

compress::Expected expect_counted(const Exchange& exchange, const Header& most,
                                  std::uint64_t elements) {
  const compress::Codings& codings = exchange.compressor.codings();
  if (most.kind != Header::Kind::partial) {
    const std::uint64_t k = compress::shortest_k(most.count, elements, codings);
    return compress::Expected::exactly(most, k, compress::shape_of(most.count, k, codings));
  }
  const auto [k, shape] = compress::shortest_partial(most.count, elements, codings);
  return compress::Expected::exactly(most, k, shape);
}

void send(Exchange& exchange, std::span<const std::byte> message, int peer) {
  count_sent(exchange, peer, message.size());
  exchange.wire.world.send(message, peer);
}

compress::EncodeJob job_of(const Exchange& exchange, Header::Kind kind, std::uint32_t stage) {
  compress::EncodeJob job{.part = exchange.part,
                          .decay = exchange.scaling.decay,
                          .header = exchange.header,
                          .random = exchange.random,
                          .encode_seconds = &exchange.wire.stats.encode_seconds,
                          .add_seconds = &exchange.wire.stats.add_seconds,
                          .status = exchange.course.status};
  job.header.kind = kind;
  job.random.stage += stage;
  return job;
}

bool decode(const Exchange& exchange, std::span<const compress::ReceivedMessage> incoming,
            std::span<compress::MessageView> views) {
  const std::uint16_t flags =
      exchange.compressor.decode_all(exchange.exec, incoming, views, exchange.course.status);
  return (flags & Header::kPoison) != 0;
}

namespace {

compress::EncodeResult result_of(const Exchange& exchange,
                                 std::span<std::span<std::byte>> messages) {
  compress::EncodeResult out{.messages = messages, .owned = exchange.owned};
  // A stream-ordered call that fails puts them back without a wait for the device.
  if (exchange.course.status != nullptr) {
    out.left = compress::BytesAndViews{
        exchange.exec.workspace->take<compress::MessageView>(messages.size())};
  }
  return out;
}

/// The Undo of a gradient that was encoded.
struct UndoEncoded {
  Messages messages;
  Undo operator()(const compress::BytesAlone&) const { return Encoded{messages}; }
  Undo operator()(const compress::BytesAndViews& left) const { return Decoded{left.views}; }
};

void keep_messages(Exchange& exchange, const compress::EncodeResult& out) {
  exchange.undo = std::visit(UndoEncoded{out.messages}, out.left);
  exchange.owned = out.owned;
}

}  // namespace

void encode_gradient(Exchange& exchange, Header::Kind kind,
                     std::span<std::span<std::byte>> messages) {
  const Stopwatch watch(&exchange.wire.stats.select_seconds, &exchange.wire.stats.encode_seconds);
  compress::EncodeResult out = result_of(exchange, messages);
  exchange.compressor.encode(exchange.exec, job_of(exchange, kind), out);
  keep_messages(exchange, out);
  exchange.wire.stats.kept += out.kept;
}

void choose_gradient(Exchange& exchange) {
  const Stopwatch watch(&exchange.wire.stats.select_seconds, &exchange.wire.stats.encode_seconds);
  compress::EncodeResult out;
  exchange.undo = Selected{
      exchange.compressor.choose(exchange.exec, job_of(exchange, Header::Kind::contribution), out)};
  exchange.owned = out.owned;
  exchange.wire.stats.kept += out.kept;
}

void encode_chosen(Exchange& exchange, Header::Kind kind,
                   std::span<std::span<std::byte>> messages) {
  const Stopwatch watch(exchange.wire.stats.encode_seconds);
  compress::EncodeResult out = result_of(exchange, messages);
  exchange.compressor.encode_chosen(exchange.exec, job_of(exchange, kind),
                                    std::get<Selected>(exchange.undo).chosen, out);
  keep_messages(exchange, out);
}

namespace {

/// Calls each(to, from) with the peers of a rank, in the order of its messages.
template <class Each>
void for_each_peer(const Exchange& exchange, const Each& each) {
  const auto ranks = static_cast<std::size_t>(exchange.wire.ranks);
  const auto self = static_cast<std::size_t>(exchange.wire.rank);
  for (std::size_t step = 1; step < ranks; ++step) {
    each((self + step) % ranks, (self + ranks - step) % ranks);
  }
}

/// A list of messages that are all messages[self].
Messages one_for_all(const Exchange& exchange, Messages messages) {
  const auto out = exchange.exec.workspace->take<std::span<std::byte>>(messages.size());
  std::ranges::fill(out, messages[static_cast<std::size_t>(exchange.wire.rank)]);
  return out;
}

}  // namespace

void enqueue_all_to_all(Exchange& exchange, Messages out, Messages in,
                        std::span<std::uint64_t> received) {
  const Stopwatch watch(exchange.wire.stats.exchange_seconds);
  const auto self = static_cast<std::size_t>(exchange.wire.rank);
  received[self] = in[self].size();
  for_each_peer(exchange, [&](std::size_t to, std::size_t from) {
    send(exchange, out[to], static_cast<int>(to));
    exchange.wire.world.recv(in[from], static_cast<int>(from), &received[from]);
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
  for_each_peer(exchange,
                [&](std::size_t, std::size_t from) { in[from] = in[from].first(*count++); });
}

Slots take_slots(const Exchange& exchange, std::size_t message_bytes) {
  const auto ranks = static_cast<std::size_t>(exchange.wire.ranks);
  const std::size_t step = Buffers::room(message_bytes);
  const std::span<std::byte> memory = take_buffer(exchange, ranks * step);
  const auto messages = exchange.exec.workspace->take<std::span<std::byte>>(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    messages[rank] = memory.subspan(rank * step, message_bytes);
  }
  return {memory, message_bytes, messages};
}

void enqueue_all_gather(Exchange& exchange, const Slots& slots, std::span<std::uint64_t> received) {
  const Stopwatch watch(exchange.wire.stats.exchange_seconds);
  const Wire& wire = exchange.wire;
  for (int peer = 0; peer < wire.ranks; ++peer) {
    if (peer != wire.rank) count_sent(exchange, peer, slots.message_bytes);
  }
  wire.world.enqueue_all_gather(slots.memory, slots.message_bytes, received);
}

}  // namespace winnow::comm
