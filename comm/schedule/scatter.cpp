// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/schedule/scatter.hpp"

#include <algorithm>
#include <utility>

#include "comm/schedule/pass_bytes.hpp"
#include "comm/schedule/rests.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/stopwatch.hpp"
#include "kernels/feedback.hpp"
#include "kernels/memory_ops.hpp"
#include "kernels/ordered_sum.hpp"

namespace winnow::comm {
namespace {

using compress::Header;
using compress::Incoming;
using compress::MessageView;
using compress::Part;
using compress::Piece;
using kernels::Stopwatch;

/// A part's residual. Its pieces follow each other in one parameter, by position.
std::span<float> residual_of(const Part& part) {
  const Piece& first = part.pieces.front();
  return first.parameter->residual.span().subspan(first.offset, part.count);
}

std::span<float> elements_of(const Part& part) {
  return {part.pieces.front().elements.floats().data(), part.count};
}

bool has_residual(const Piece& piece) {
  return piece.state->dirty && !piece.residual().empty();
}

/// What is expected of a gradient's message in an exchange.
compress::Expected expect(const Exchange& exchange) {
  return exchange.part.expect(exchange.header, exchange.part.shapes.gradients.front());
}

/// Keeps what the elements of the own shard cannot hold of their sums: no other rank has these.
void keep_rest_of(const Exchange& exchange, const Piece& piece) {
  if (!is_rounded(piece)) return;
  const auto look = [&](std::uint32_t* too_large) {
    keep_rest(exchange.exec, {piece, {.by = exchange.scaling.averaged}}, too_large);
  };
  if (kernels::answer(exchange.exec, look) == 0) return;
  piece.state->mark_dirty();
  exchange.wire.stats.clipped = 1;
}

}  // namespace

Scatter::Scatter(std::span<Exchange> shards)
    : shards_(shards),
      self_(static_cast<std::size_t>(shards.front().wire.world.rank())),
      own_(shards[self_]),
      sum_(kernels::scratch_of(own_.exec).take<float>(own_.part.count)),
      acc_(residual_of(own_.part)) {
  const Part& part = own_.part;
  const std::size_t bytes = part.shapes.gradients.front().bytes();
  const auto buffer_for = [&](std::uint32_t rank) { return rank == self_ ? 0 : bytes; };
  messages_ = take_buffers(own_, buffer_for);
  incoming_ = take_buffers(own_, buffer_for);
  received_ = own_.exec.workspace->take<std::uint64_t>(shards.size());
}

void Scatter::contribute() {
  {
    const Stopwatch watch(own_.wire.stats.select_seconds);
    compress::keep(own_.exec, own_.part.pieces, own_.scaling.decay);
    own_.undo = Accumulated{};
  }
  for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
    if (shard == self_) continue;
    encode_gradient(shards_[shard], Header::Kind::gradient, messages_.subspan(shard, 1));
  }
}

/// Starts what is enqueued and returns when it is done.
void Scatter::await() {
  const Stopwatch watch(own_.wire.stats.wait_seconds);
  own_.wire.world.wait(own_.wire.world.start(own_.exec), own_.wire.deadline);
}

void Scatter::exchange() {
  contribute();
  if (needs_counts(own_, Header::Kind::gradient)) {
    Counts bytes = count_bytes(own_, messages_, incoming_);
    await();
    bytes.finish();
    cut_to(own_, bytes, incoming_);
  }
  enqueue_all_to_all(own_, messages_, incoming_, received_);
  await();
}

bool Scatter::sum() {
  const Stopwatch watch(own_.wire.stats.add_seconds);
  Workspace& workspace = *own_.exec.workspace;
  const std::size_t ranks = shards_.size();
  // What came for this rank, and what it has sent, whose poison the other ranks know.
  const auto incoming = workspace.take<Incoming>(2 * (ranks - 1));
  const auto views = workspace.take<MessageView>(2 * (ranks - 1));
  std::size_t count = 0;
  for (std::size_t sender = 0; sender < ranks; ++sender) {
    if (sender == self_) continue;
    incoming[count++] = {incoming_[sender].first(received_[sender]), expect(own_),
                         static_cast<int>(sender)};
  }
  for (std::size_t shard = 0; shard < ranks; ++shard) {
    if (shard == self_) continue;
    const Exchange& sent = shards_[shard];
    incoming[count++] = {std::get<Encoded>(sent.undo).messages.front(), expect(sent),
                         static_cast<int>(self_)};
  }
  const std::uint16_t flags = own_.compressor.open_all(own_.exec, incoming, views);
  const auto opened = views.subspan(ranks - 1);
  for (std::size_t shard = 0, next = 0; shard < ranks; ++shard) {
    if (shard != self_) std::get<Encoded>(shards_[shard].undo).opened = opened.subspan(next++, 1);
  }
  if (!opened.empty()) compress::name_codings(opened.front().header, own_.wire.stats.coding);
  if ((flags & Header::kPoison) != 0) return false;

  const auto terms = workspace.take<kernels::Term>(ranks);
  for (std::size_t rank = 0, next = 0; rank < ranks; ++rank) {
    terms[rank] = rank == self_ ? kernels::Term{.value = acc_} : compress::term(views[next++]);
  }
  const bool coded = !own_.compressor.keeps_all() && !own_.compressor.codings().exact();
  const auto placed =
      kernels::place_terms_to_sum(own_.exec, terms, coded ? own_.part.k : std::uint64_t{0});
  const kernels::PlacedSpan target{sum_};
  const float factor = std::exchange(own_.scaling.factor, 1.0F);
  const auto look = [&](std::uint32_t* not_finite) {
    // acc_ does not tell: where acc is not finite, the residual stays.
    kernels::all_finite(own_.exec, elements_of(own_.part), not_finite);
    kernels::ordered_sum(own_.exec, {.terms = placed,
                                     .sums = kernels::alone(target),
                                     .factor = factor,
                                     .not_finite = not_finite});
  };
  own_.result.outcome = WholeSum{.sum = sum_};
  return kernels::answer(own_.exec, look) == 0;
}

void Scatter::write() {
  const Stopwatch watch(own_.wire.stats.add_seconds);
  kernels::copy(own_.exec, elements_of(own_.part), sum_);
  kernels::zero(own_.exec, std::as_writable_bytes(acc_));
  for (const Piece& piece : own_.part.pieces) {
    piece.state->dirty = false;
    keep_rest_of(own_, piece);
  }
}

namespace {

/// (P - 1) messages, each of one rank's share.
std::uint64_t wire_bytes(const CostShape& shape) {
  return one_to_each_other(shape) * compress::message_bytes(shape.count, shape.k, shape.codings);
}

double pass_bytes(const CostShape& shape) {
  return encode_pass(shape.count, shape.k, shape.parameters) +
         add_pass(shape.count, shape.k, shape.ranks);
}

/// (P - 1) / P * 4 bytes per element.
std::uint64_t dense_wire_bytes(const CostShape& shape) {
  return (shape.count - shape.count / static_cast<std::uint64_t>(shape.ranks)) * sizeof(float);
}

Rounds run_dense(Exchange& exchange) {
  const std::span<float> all = elements_of(exchange.part);
  exchange.undo = Overwritten{};
  {
    const Stopwatch watch(exchange.wire.stats.select_seconds);
    for (const Piece& piece : exchange.part.pieces) {
      if (!has_residual(piece)) continue;
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
  const int ranks = exchange.wire.world.size();
  count_sent(exchange, (exchange.wire.world.rank() + 1) % ranks,
             dense_wire_bytes({.ranks = ranks, .count = exchange.part.count}));
  co_return;
}

/// The own shard times the factor; what travelled with it is no residual any more, unless the
/// elements cannot hold it. Where nothing waited they become infinite then, as in any dense sum.
void write_dense(Exchange& exchange, const Exec& exec) {
  const std::uint64_t shard =
      exchange.part.count / static_cast<std::uint64_t>(exchange.wire.world.size());
  const auto own =
      elements_of(exchange.part)
          .subspan(shard * static_cast<std::uint64_t>(exchange.wire.world.rank()), shard);
  if (exchange.scaling.factor != 1) kernels::scale(exec, own, exchange.scaling.factor);
  for (const Piece& piece : exchange.part.pieces) {
    if (!has_residual(piece)) continue;
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
    .run = nullptr,  // Scatter runs all parts at once
    .costs = {.wire_bytes = wire_bytes, .messages = one_to_each_other, .pass_bytes = pass_bytes},
};

constinit const Schedule kDenseScatter{
    .name = "dense",
    .summary = "the transport's own reduce-scatter",
    .run = run_dense,
    .costs = {.wire_bytes = dense_wire_bytes,
              .messages = one_to_each_other,
              .pass_bytes = pass_bytes},
    .write = write_dense,
};

}  // namespace winnow::comm
