// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "comm/schedule/collective.hpp"
#include "comm/schedule/pass_bytes.hpp"
#include "comm/schedule/rests.hpp"
#include "comm/schedule/schedule.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/stopwatch.hpp"
#include "kernels/exec/together.hpp"
#include "kernels/exec/workspace_internal.hpp"
#include "kernels/feedback.hpp"
#include "kernels/memory_ops.hpp"

namespace winnow::comm {

namespace {

using compress::Part;
using compress::Piece;
using kernels::Stopwatch;

/// The pieces' elements as one span if they are adjacent in memory, else empty.
std::span<float> contiguous(const Part& part) {
  std::span<float> all = part.pieces.front().elements.floats();
  for (const Piece& piece : std::span(part.pieces).subspan(1)) {
    if (piece.elements.data() != all.data() + all.size()) return {};
    all = {all.data(), all.size() + piece.elements.size()};
  }
  return all;
}

/// A residual that changes nothing it is added to, not even -0.
constexpr float kNothing = -0.0F;

/// Fills `all` with the terms of the sum; unless `packed`, `all` is the elements themselves.
/// Residuals stay until the sum is written.
void fill_in(const Exchange& exchange, bool packed, std::span<float> all) {
  const Stopwatch watch(exchange.wire.stats.select_seconds);
  const std::span<const Piece> pieces = exchange.part.pieces;
  kernels::together(exchange.exec, [&] {
    if (!packed) return;
    for (const Piece& piece : pieces) {
      kernels::copy(exchange.exec, all.subspan(piece.base, piece.elements.size()),
                    piece.elements.floats());
    }
  });
  kernels::together(exchange.exec, [&] {
    for (const Piece& piece : pieces) {
      if (!piece.has_residual()) continue;
      kernels::feedback_add(exchange.exec, all.subspan(piece.base, piece.elements.size()),
                            piece.residual(), exchange.scaling.decay);
    }
  });
}

bool in_one_step(const CostShape& shape) {
  return reduces_in_one_step(shape.count, sizeof(float), shape.ranks);
}

std::uint64_t wire_bytes(const CostShape& shape) {
  return dense_bytes(shape.count, sizeof(float), shape.ranks);
}

std::uint64_t messages(const CostShape& shape) {
  return in_one_step(shape) ? one_to_each_other(shape) : two_to_each_other(shape);
}

/// Bytes that leave the node with the most ring links; a link goes from each rank to the next.
std::uint64_t network_bytes(const CostShape& shape) {
  const std::uint64_t link_bytes = wire_bytes(shape);
  if (in_one_step(shape)) return all_to_all_network_bytes(shape, link_bytes);
  if (shape.topology == nullptr) return link_bytes;
  const Topology& topology = *shape.topology;
  std::vector<std::uint64_t> links(static_cast<std::size_t>(topology.nodes()));
  for (int rank = 0; rank < topology.ranks(); ++rank) {
    const int node = topology.node_of(rank);
    const bool leaves = topology.node_of((rank + 1) % topology.ranks()) != node;
    links[static_cast<std::size_t>(node)] += leaves ? 1 : 0;
  }
  return std::ranges::max(links) * link_bytes;
}

double pass_bytes(const CostShape& shape) {
  const std::uint64_t own = shape.count / static_cast<std::uint64_t>(shape.ranks);
  return kReducePass * static_cast<double>(shape.count - own);
}

/// One all_reduce of the transport over all pieces: in place if they are adjacent in memory, and
/// scratch is not registered, otherwise through scratch of the same size (each rank for itself).
/// The first dense call also sends what compressed calls have left in the residual. Leaves the
/// result as WholeSum; unless in place, elements and residual keep their content.
Rounds run(Exchange& exchange) {
  const Part& part = exchange.part;
  const std::span<float> in_place = contiguous(part);
  Workspace& scratch = kernels::scratch_of(exchange.exec);
  const bool packed = in_place.empty() || exchange.course.undoable ||
                      Workspace::Internal::is_foreign(scratch, std::as_bytes(in_place).data());
  const std::span<float> all = packed ? scratch.take<float>(part.count) : in_place;
  fill_in(exchange, packed, all);
  if (exchange.course.status != nullptr && exchange.course.undoable) {
    // Other ranks may have read what this one could not: they learn it by this sum.
    Exec spoiled = exchange.exec;
    spoiled.condition = kernels::spoiled(*exchange.course.status);
    kernels::fill(spoiled, all, std::numeric_limits<float>::quiet_NaN());
  }
  if (!packed) exchange.undo = Overwritten{};
  {
    const Stopwatch watch(exchange.wire.stats.exchange_seconds);
    all_reduce({.world = exchange.wire.world,
                .exec = exchange.exec,
                .deadline = exchange.wire.deadline,
                .ring = exchange.course.ring,
                .stream_ordered = exchange.course.status != nullptr},
               all, ReduceOp::sum);
  }
  exchange.result.outcome = WholeSum{.sum = all, .in_place = !packed};
  exchange.wire.stats.kept += part.count;
  const int ranks = exchange.wire.ranks, rank = exchange.wire.rank;
  const int receivers = in_one_step({ranks, part.count}) ? ranks - 1 : 1;
  const std::uint64_t bytes = wire_bytes({ranks, part.count});
  for (int distance = 1; distance <= receivers; ++distance) {
    count_sent(exchange, (rank + distance) % ranks, bytes / static_cast<std::uint64_t>(receivers));
  }
  co_return;
}

/// Writes the sum times Scaling::factor to the elements, and clears the residual that travelled
/// with it. The residual keeps the part of a sum that elements of 16 bits cannot hold; in a bucket
/// that is dense as a whole, where nothing waits, they become infinite instead, as MPI's and NCCL's
/// do.
void write(Exchange& exchange, const Exec& exec) {
  const auto [sum, in_place] = std::get<WholeSum>(exchange.result.outcome);
  if (exchange.scaling.factor != 1) kernels::scale(exchange.exec, sum, exchange.scaling.factor);
  const auto sum_of = [&sum = sum](const Piece& piece) {
    return sum.subspan(piece.base, piece.elements.size());
  };
  // The host of a device's stream never learns whether the residual is zero.
  const bool learns = exchange.course.status == nullptr;
  kernels::together(exec, [&] {
    for (const Piece& piece : exchange.part.pieces) {
      if (!in_place) kernels::copy(exec, piece.elements.floats(), sum_of(piece));
      if (!learns && piece.has_residual()) kernels::fill(exec, piece.residual(), kNothing);
    }
  });
  const kernels::RestKeeper keeper = keeper_of(exchange, kDense);
  if (!learns) {
    kernels::together(exec, [&] {
      for (const Piece& piece : exchange.part.pieces) {
        if (!exchange.course.undoable || !is_rounded(piece)) continue;
        keep_rest(exec, {piece, keeper}, &exchange.course.status->too_large);
      }
    });
    return;
  }
  for (const Piece& piece : exchange.part.pieces) {
    const bool waited = piece.has_residual();
    if (waited) {
      // The caller will skip a sum that is not finite, so the residual stays for the next one.
      const auto look = [&](std::uint32_t* not_finite) {
        kernels::all_finite(exchange.exec, sum_of(piece), not_finite);
      };
      if (kernels::answer(exchange.exec, look) != 0) continue;
      kernels::zero(exchange.exec, std::as_writable_bytes(piece.residual()));
      piece.state->dirty = false;
    }
    if (is_rounded(piece) && (waited || exchange.course.undoable))
      keep_rest(exchange, {piece, keeper});
  }
}

}  // namespace

constinit const Schedule kDense{
    .name = "dense",
    .summary = "the transport's own allreduce, or Winnow's ring",
    .run = run,
    .costs = {.wire_bytes = wire_bytes,
              .messages = messages,
              .pass_bytes = pass_bytes,
              .network_bytes = network_bytes},
    .write = write,
};

}  // namespace winnow::comm
