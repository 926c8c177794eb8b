// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <memory>
#include <span>

#include "comm/schedule/node_part.hpp"
#include "comm/schedule/node_share.hpp"
#include "comm/schedule/node_sum.hpp"
#include "comm/schedule/rests.hpp"
#include "comm/schedule/schedule.hpp"
#include "comm/schedule/shards.hpp"
#include "kernels/exec/stopwatch.hpp"
#include "kernels/exec/together.hpp"
#include "kernels/memory_ops.hpp"

namespace winnow::comm {
namespace {

using compress::Piece;
using kernels::Stopwatch;

/// The second round: each rail of a part reduces its shard by the inner schedule, with nodes as
/// ranks and node sums as gradients.
class InnerRounds {
 public:
  explicit InnerRounds(const NodePart& node)
      : node_(node), exchanges_(node.exchange.exec.workspace->take<Exchange>(node.shards.size())) {}
  ~InnerRounds() {
    for (Shard& shard : node_.shards) shard.rounds = {};  // their frames are scratch of the call
  }
  InnerRounds(const InnerRounds&) = delete;
  InnerRounds& operator=(const InnerRounds&) = delete;

  /// The exchanges by rail; set if this rank serves it.
  std::span<Exchange> exchanges() const { return exchanges_; }

  /// Begins the rails that this rank serves, once their shards view node sums.
  void begin() {
    for (std::size_t rail = 0; rail < node_.shards.size(); ++rail) {
      Shard& shard = node_.shards[rail];
      for (std::size_t i = 0; i < shard.places.size(); ++i) {  // a discarded step gave it back
        shard.states[i].turn = node_.whole(shard.places[i]).state->turn;
      }
      if (node_.serves(rail)) begin(rail);
    }
  }

  /// Resumes the rails up to their next stop, which is the same for all; one rail after the other
  /// if the host waits for a device within them. False at the end.
  bool resume() {
    const bool one_by_one = goes_alone(node_.inner, node_.exchange, node_.rails.topology().nodes());
    bool stopped = false;
    for (std::size_t rail = rail_; rail < node_.shards.size(); ++rail) {
      const bool has_stop = node_.serves(rail) && node_.shards[rail].rounds.resume();
      if (has_stop) ticket_ = node_.shards[rail].rounds.ticket();
      stopped |= has_stop;
      if (!one_by_one) continue;
      if (has_stop) break;
      rail_ = rail + 1;
    }
    return stopped;
  }
  /// Ticket of the last rail resumed, which covers all: rails share the world's tickets.
  Ticket ticket() const { return ticket_; }

 private:
  void begin(std::size_t rail) {
    const Exchange& whole = node_.exchange;
    Shard& shard = node_.shards[rail];
    const std::uint16_t number = node_.number_of(rail);
    Exchange& inner = *std::construct_at(
        &exchanges_[rail], Exchange{.wire = {.world = *node_.rails.transport(rail),
                                             .rank = node_.rails.node(),
                                             .ranks = node_.rails.topology().nodes(),
                                             .deadline = whole.wire.deadline,
                                             .stats = whole.wire.stats,
                                             .names = node_.rails.ranks(rail)},
                                    .compressor = whole.compressor,
                                    .exec = whole.exec,
                                    .scaling = {.decay = whole.scaling.decay, .factor = 1},
                                    .course = {.ring = whole.course.ring,
                                               .status = whole.course.status,
                                               .one_outcome = true},
                                    .part = shard.part,
                                    .header = whole.header,
                                    .random = whole.random});
    inner.header.part = number;
    inner.header.count = shard.part.count;
    inner.header.k = shard.part.k;
    inner.random.stage = number * (shard.part.partition.owners() + 1);
    shard.rounds = node_.inner.run_part(inner);
  }

  const NodePart& node_;
  std::span<Exchange> exchanges_;
  std::size_t rail_ = 0;  // rails before it have ended
  Ticket ticket_;
};

/// Hierarchical: only compressed sums of whole nodes leave a node. A part is cut into one shard per
/// rail (comm/schedule/shards.hpp); on each node one rank serves a shard. Rounds:
///   1. Each rank sends its gradient, shard by shard, to the ranks of its node that serve them.
///      These add the node's gradients in rank order, position i as ((0 + g[0][i]) + g[1][i]) + ...
///   2. Each rail reduces its shard by the inner schedule, with nodes as ranks and node sums as
///      gradients. The server on each node keeps what it does not send, so a rank's residual
///      covers the shards that it serves; any residual elsewhere, from a failed call or another
///      schedule, goes into round 1 once.
///   3. Each server sends the inner schedule's final messages to its node unchanged. An outcome
///      that is not a message (doubling's sum; shared's values, whose support came before) becomes
///      one, with uncoded values. Where a gradient decides how long it is, and sizes do not travel
///      with messages, the server first sends the node its count.
/// So position i sums over nodes in the inner schedule's order, and each node's term over its ranks
/// in rank order. Ends with a WholeSum; the elements keep the gradient.
Rounds run(Exchange& exchange) {
  const NodePart node(exchange);
  NodeSum sum(node);
  InnerRounds inner(node);
  NodeShare outcomes(node, inner.exchanges());
  sum.collect();
  co_await exchange.wire.world.start(exchange.exec);
  {
    const Stopwatch watch(exchange.wire.stats.add_seconds);
    sum.sum();
    inner.begin();
  }
  while (inner.resume()) co_await inner.ticket();
  if (outcomes.needs_counts()) {
    Counts counts = outcomes.count();
    co_await exchange_counts(counts);
    outcomes.take_counts(counts);
  }
  outcomes.share();
  co_await exchange.wire.world.start(exchange.exec);
  outcomes.finish(sum.memory().first(exchange.part.count));
}

/// Keeps the rests of sums that are to be rounded: the servers of a shard share them out.
void keep_rests(const Exchange& exchange, const Exec& exec) {
  const Rails& rails = *exchange.levels.rails;
  count_clipped(exchange, [&](std::uint32_t* too_large) {
    kernels::together(exec, [&] {
      for (std::size_t rail = 0; rail < exchange.levels.shards->of_rail.size(); ++rail) {
        const Shard& shard = exchange.levels.shards->of_rail[rail];
        kernels::RestKeeper keeper = kernels::RestKeeper::nobody();
        if (rails.transport(rail) != nullptr) {
          keeper = keeper_among(rails.node(), rails.topology().nodes(), shard.part,
                                *exchange.levels.shards->inner, exchange.scaling.averaged);
        }
        for (const Piece& piece : shard.part.pieces) {  // which view the sum
          if (is_rounded(piece)) keep_rest(exec, {piece, keeper}, too_large);
        }
      }
    });
  });
}

/// Writes the sum, which includes the factor, to the elements. Clears the residual that travelled
/// in round 1, and keeps what balanced or shared leaves, and what elements cannot hold.
void write(Exchange& exchange, const Exec& exec) {
  for (std::size_t rail = 0; rail < exchange.levels.shards->of_rail.size(); ++rail) {
    const Shard& shard = exchange.levels.shards->of_rail[rail];
    if (exchange.levels.rails->transport(rail) != nullptr) {
      compress::store_remainder(exec, shard.part, shard.owned);
      continue;
    }
    for (std::size_t i = 0; i < shard.places.size(); ++i) {
      if (exchange.levels.shards->folded[shard.places[i].piece] == 0) continue;
      kernels::fill(exec, shard.part.pieces[i].residual(), 0);
    }
  }
  keep_rests(exchange, exec);
  for (const Piece& piece : exchange.part.pieces) {
    const auto sum = sum_of(exchange).subspan(piece.base, piece.elements.size());
    kernels::copy(exec, piece.elements.bytes(), std::as_bytes(sum));
  }
  for (const Piece& piece : exchange.part.pieces) {
    piece.state->dirty = true;
    piece.state->owned_by_plan = exchange.header.bucket;
  }
}

/// Two levels, with a schedule between nodes.
constexpr Schedule two_level(const Schedule& inner, std::string_view name,
                             std::string_view summary) {
  return {.name = name, .summary = summary, .run = run, .write = write, .inner = &inner};
}

}  // namespace

constinit const Schedule kTwoLevelGather =
    two_level(kGather, "two_level:gather", "node sums by shards, gather between nodes");
constinit const Schedule kTwoLevelDoubling =
    two_level(kDoubling, "two_level:doubling", "node sums by shards, doubling between nodes");
constinit const Schedule kTwoLevelBalanced =
    two_level(kBalanced, "two_level:balanced", "node sums by shards, balanced between nodes");
constinit const Schedule kTwoLevelShared =
    two_level(kShared, "two_level:shared", "node sums by shards, shared between nodes");

}  // namespace winnow::comm
