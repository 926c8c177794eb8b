// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "comm/schedule/rests.hpp"
#include "comm/schedule/schedule.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/stopwatch.hpp"
#include "kernels/feedback.hpp"
#include "kernels/memory_ops.hpp"
#include "kernels/ordered_sum.hpp"

namespace winnow::comm {
namespace {

using compress::Header;
using compress::MessageView;
using compress::Part;
using compress::Piece;
using compress::ReceivedMessage;
using kernels::Stopwatch;

/// A part's residual. Its pieces follow each other in one parameter, by position.
std::span<float> residual_of(const Part& part) {
  const Piece& first = part.pieces.front();
  return first.parameter->residual.span().subspan(first.offset, part.count);
}

std::span<float> elements_of(const Part& part) {
  return {part.pieces.front().elements.floats().data(), part.count};
}

/// The expectation of a gradient's message in an exchange.
compress::Expected expect(const Exchange& exchange) {
  return exchange.compressor.expect(exchange.header, exchange.part.shapes.gradients.front());
}

/// Keeps what the elements of the own shard cannot hold of their sums: no other rank has these.
void keep_rest_of(const Exchange& exchange, const Piece& piece) {
  if (is_rounded(piece)) keep_rest(exchange, {piece, {.by = exchange.scaling.averaged}});
}

/// Error feedback on the own shard, and selection from all others: each becomes a message.
void encode_shards(std::span<Exchange> shards, std::size_t self,
                   std::span<std::span<std::byte>> messages) {
  {
    const Stopwatch watch(shards[self].wire.stats.select_seconds);
    compress::keep(shards[self].exec, shards[self].part.pieces, shards[self].scaling.decay);
    shards[self].undo = Accumulated{};
  }
  for (std::size_t shard = 0; shard < shards.size(); ++shard) {
    if (shard == self) continue;
    encode_gradient(shards[shard], Header::Kind::gradient, messages.subspan(shard, 1));
  }
}

/// Decodes the `incoming` messages for the own shard and this rank's own messages, whose poison the
/// other ranks know. Returns views of the former, by sender without this rank.
std::span<MessageView> decode(std::span<Exchange> shards, std::size_t self,
                              std::span<const std::span<std::byte>> incoming,
                              std::span<const std::uint64_t> received) {
  Exchange& own = shards[self];
  Workspace& workspace = *own.exec.workspace;
  const std::size_t ranks = shards.size();
  const auto messages = workspace.take<ReceivedMessage>(2 * (ranks - 1));
  const auto views = workspace.take<MessageView>(2 * (ranks - 1));
  std::size_t count = 0;
  for (std::size_t sender = 0; sender < ranks; ++sender) {
    if (sender == self) continue;
    messages[count++] = {incoming[sender].first(received[sender]), expect(own),
                         static_cast<int>(sender)};
  }
  for (std::size_t shard = 0; shard < ranks; ++shard) {
    if (shard == self) continue;
    const Exchange& sent = shards[shard];
    messages[count++] = {std::get<Encoded>(sent.undo).messages.front(), expect(sent),
                         static_cast<int>(self)};
  }
  own.result.poisoned = comm::decode(own, messages, views);
  const auto decoded = views.subspan(ranks - 1);
  for (std::size_t shard = 0, next = 0; shard < ranks; ++shard) {
    if (shard != self) shards[shard].undo = Decoded{decoded.subspan(next++, 1)};
  }
  if (!decoded.empty()) name_codings(own, decoded.front().header);
  return views.first(ranks - 1);
}

/// Adds the messages and the own acc in rank order, times the factor. Whether the sum is finite
/// goes into the result.
void add(Exchange& own, std::span<const MessageView> views, std::span<float> acc,
         std::span<float> sum) {
  const auto self = static_cast<std::size_t>(own.wire.rank);
  const auto terms = own.exec.workspace->take<kernels::Term>(views.size() + 1);
  for (std::size_t rank = 0, next = 0; rank < terms.size(); ++rank) {
    terms[rank] = rank == self ? kernels::Term{.value = acc} : views[next++].term;
  }
  const auto placed =
      kernels::place_terms_to_sum(own.exec, terms, own.compressor.decoded_room(own.part.k));
  const kernels::PlacedSpan target{sum};
  const float factor = std::exchange(own.scaling.factor, 1.0F);
  const auto look = [&](std::uint32_t* not_finite) {
    // acc does not tell: where acc is not finite, the residual stays.
    kernels::all_finite(own.exec, elements_of(own.part), not_finite);
    kernels::ordered_sum(own.exec, {.terms = placed,
                                    .sums = kernels::alone(target),
                                    .factor = factor,
                                    .not_finite = not_finite});
  };
  own.result.poisoned = kernels::answer(own.exec, look) != 0;
}

/// The first round of `balanced` with contiguous owners, of shards of one size: each rank sends
/// every other rank d what it keeps of shard d, and adds what came for its own shard in rank order.
/// All of its own acc goes into that sum: position i is ((0 + m[0][i]) + m[1][i]) + ..., where
/// m[self] is acc. Leaves the WholeSum of the own shard. Its result is poisoned if anything that
/// this rank has seen is not finite: gradients, messages or sum.
Rounds run(std::span<Exchange> shards) {
  const auto self = static_cast<std::size_t>(shards.front().wire.rank);
  Exchange& own = shards[self];
  const std::span<float> sum = kernels::scratch_of(own.exec).take<float>(own.part.count);
  const std::size_t bytes = own.part.shapes.gradients.front().bytes();
  const auto buffer_for = [&](std::uint32_t rank) { return rank == self ? 0 : bytes; };
  const auto messages = take_buffers(own, buffer_for), incoming = take_buffers(own, buffer_for);
  const auto received = own.exec.workspace->take<std::uint64_t>(shards.size());
  encode_shards(shards, self, messages);
  if (needs_counts(own, Header::Kind::gradient)) {
    Counts counts = count_bytes(own, messages, incoming);
    co_await exchange_counts(counts);
    cut_to(own, counts, incoming);
  }
  enqueue_all_to_all(own, messages, incoming, received);
  co_await own.wire.world.start(own.exec);

  const Stopwatch watch(own.wire.stats.add_seconds);
  const auto views = decode(shards, self, incoming, received);
  if (!own.result.poisoned) add(own, views, residual_of(own.part), sum);
  own.result.outcome = WholeSum{.sum = sum};
}

/// Writes the sum to the elements of the own shard, whose residual it has emptied but for what
/// these cannot hold. The elements of other shards hold anything.
void write(Exchange& exchange, const Exec& exec) {
  const WholeSum* const whole = std::get_if<WholeSum>(&exchange.result.outcome);
  if (whole == nullptr) return;
  kernels::copy(exec, elements_of(exchange.part), whole->sum);
  kernels::zero(exec, std::as_writable_bytes(residual_of(exchange.part)));
  for (const Piece& piece : exchange.part.pieces) {
    piece.state->dirty = false;
    keep_rest_of(exchange, piece);
  }
}

/// (P - 1) / P * 4 bytes per element.
std::uint64_t dense_wire_bytes(const CostShape& shape) {
  return (shape.count - shape.count / static_cast<std::uint64_t>(shape.ranks)) * sizeof(float);
}

/// The sum is left in the ring_chunk of this rank, and other elements hold anything. The first
/// dense call also sends what compressed calls have left in the residual.
Rounds run_dense(Exchange& exchange) {
  const std::span<float> all = elements_of(exchange.part);
  exchange.undo = Overwritten{};
  {
    const Stopwatch watch(exchange.wire.stats.select_seconds);
    for (const Piece& piece : exchange.part.pieces) {
      if (!piece.has_residual()) continue;
      kernels::feedback_add(exchange.exec, piece.elements.floats(), piece.residual(),
                            exchange.scaling.decay);
    }
  }
  {
    const Stopwatch watch(exchange.wire.stats.exchange_seconds);
    exchange.wire.world.reduce_scatter(exchange.exec, all, exchange.wire.deadline);
    if (kernels::reading_waits(exchange.exec)) {
      exchange.wire.world.wait(exchange.wire.world.start(exchange.exec), exchange.wire.deadline);
    }
  }
  exchange.result.outcome = WholeSum{.sum = all, .in_place = true};
  exchange.wire.stats.kept += exchange.part.count;
  const int ranks = exchange.wire.ranks;
  count_sent(exchange, (exchange.wire.rank + 1) % ranks,
             dense_wire_bytes({.ranks = ranks, .count = exchange.part.count}));
  co_return;
}

/// The own shard times the factor; what travelled with it is no residual any more, unless the
/// elements cannot hold it. Where nothing waited they become infinite then, as in any dense sum.
void write_dense(Exchange& exchange, const Exec& exec) {
  const std::uint64_t shard = exchange.part.count / static_cast<std::uint64_t>(exchange.wire.ranks);
  const auto own = elements_of(exchange.part)
                       .subspan(shard * static_cast<std::uint64_t>(exchange.wire.rank), shard);
  if (exchange.scaling.factor != 1) kernels::scale(exec, own, exchange.scaling.factor);
  for (const Piece& piece : exchange.part.pieces) {
    if (!piece.has_residual()) continue;
    kernels::zero(exec, std::as_writable_bytes(piece.residual()));
    piece.state->dirty = false;
    if (piece.elements.data() >= own.data() && piece.elements.data() < own.data() + own.size()) {
      keep_rest_of(exchange, piece);
    }
  }
}

}  // namespace

constinit const Schedule kScatter{
    .name = "scatter",
    .summary = "each rank sends every owner what it keeps of the owner's shard",
    .run = run,
    .costs = {.wire_bytes = bytes_to_each_other,
              .messages = one_to_each_other,
              .pass_bytes = encode_and_add_pass},
    .write = write,
};

constinit const Schedule kDenseScatter{
    .name = "dense",
    .summary = "the transport's own reduce-scatter",
    .run = run_dense,
    .costs = {.wire_bytes = dense_wire_bytes,
              .messages = one_to_each_other,
              .pass_bytes = encode_and_add_pass},
    .write = write_dense,
};

}  // namespace winnow::comm
