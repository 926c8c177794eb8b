// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/balanced.hpp"

#include <algorithm>

#include "comm/pass_bytes.hpp"
#include "compress/stopwatch.hpp"

namespace winnow::comm {
namespace {

using compress::Header;
using compress::MessageView;
using compress::Stopwatch;

/// The two rounds of one part; a member a stage.
class Balanced {
 public:
  explicit Balanced(Exchange& exchange)
      : exchange_(exchange),
        workspace_(*exchange.exec.workspace),
        part_(exchange.part),
        codings_(exchange.compressor.codings()),
        ranks_(static_cast<std::size_t>(exchange.world.size())),
        self_(static_cast<std::size_t>(exchange.world.rank())),
        received_(workspace_.take<std::uint64_t>(ranks_)),
        views_(workspace_.take<MessageView>(ranks_)) {}

  /// Round 1, before: what this rank keeps, by owner, goes to the owners.
  void contribute() {
    encode();
    contributions_ = rooms([&](std::uint32_t) {
      return compress::message_room(local_count(self()), part_.most_for(self()), codings_);
    });
    swap(exchange_.own, contributions_);
  }

  /// Round 1, after, and round 2, before: what this rank keeps of its sums goes to all.
  void sum() {
    open_contributions();
    sums_ = rooms([&](std::uint32_t owner) {
      return compress::message_bytes(local_count(owner), part_.owner_k[owner], codings_);
    });
    sums_[self_] = encode_sums(sums_[self_]);
    received_[self_] = sums_[self_].size();
    const auto to_all = workspace_.take<std::span<std::byte>>(ranks_);
    std::ranges::fill(to_all, sums_[self_]);
    swap(to_all, sums_);
  }

  /// Round 2, after.
  void finish() {
    const Stopwatch watch(exchange_.stats.add_seconds);
    Header expected = exchange_.header;
    expected.kind = Header::Kind::sum;
    for (std::uint32_t owner = 0; owner < ranks_; ++owner) {
      expected.count = local_count(owner);
      expected.k = part_.owner_k[owner];
      views_[owner] =
          exchange_.compressor.open(exchange_.exec, sums_[owner].first(received_[owner]),
                                    part_.expect(expected), static_cast<int>(owner));
      exchange_.poisoned |= (views_[owner].header.flags & Header::kPoison) != 0;
    }
    exchange_.sums = views_;
    compress::name_codings(views_[self_].header, exchange_.stats.coding);
  }

 private:
  std::uint32_t self() const { return static_cast<std::uint32_t>(self_); }
  std::uint64_t local_count(std::uint32_t owner) const {
    return part_.partition.local_count(owner);
  }

  /// A message of room(owner) bytes for each rank.
  template <class Room>
  std::span<std::span<std::byte>> rooms(const Room& room) {
    const auto messages = workspace_.take<std::span<std::byte>>(ranks_);
    for (std::uint32_t owner = 0; owner < ranks_; ++owner) {
      messages[owner] = exchange_.compressor.room(exchange_.exec, room(owner));
    }
    return messages;
  }

  void encode() {
    const Stopwatch watch(&exchange_.stats.select_seconds, &exchange_.stats.encode_seconds);
    compress::Outbox out{.messages = rooms([&](std::uint32_t owner) {
                           return owner == self()
                                      ? 0
                                      : compress::message_room(local_count(owner),
                                                               part_.most_for(owner), codings_);
                         })};
    Header header = exchange_.header;
    header.kind = Header::Kind::contribution;
    exchange_.compressor.encode(exchange_.exec,
                                {.part = part_,
                                 .decay = exchange_.decay,
                                 .header = header,
                                 .random = exchange_.random,
                                 .encode_seconds = &exchange_.stats.encode_seconds},
                                out);
    exchange_.own = out.messages;
    exchange_.owned = out.owned;
    exchange_.stats.kept += out.kept;
    poisoned_ = !out.finite || (exchange_.header.flags & Header::kPoison) != 0;
  }

  /// Sends out[peer] to each peer and receives in[peer]; rank r begins with r + 1 and goes up, so
  /// that no rank is everybody's first target.
  void swap(std::span<const std::span<std::byte>> out, std::span<const std::span<std::byte>> in) {
    const Stopwatch watch(exchange_.stats.exchange_seconds);
    Transport& world = exchange_.world;
    for (std::size_t step = 1; step < ranks_; ++step) {
      const std::size_t to = (self_ + step) % ranks_, from = (self_ + ranks_ - step) % ranks_;
      world.send(out[to], static_cast<int>(to));
      world.recv(in[from], static_cast<int>(from), &received_[from]);
      count_sent(exchange_, static_cast<int>(to), out[to].size());
    }
  }

  /// What other ranks keep of the positions that this rank sums.
  void open_contributions() {
    const Stopwatch watch(exchange_.stats.add_seconds);
    Header expected = exchange_.header;
    expected.kind = Header::Kind::contribution;
    expected.count = local_count(self());
    expected.k = part_.most_for(self());
    for (std::size_t sender = 0; sender < ranks_; ++sender) {
      views_[sender] = {};
      if (sender == self_) continue;
      views_[sender] = exchange_.compressor.open(
          exchange_.exec, contributions_[sender].first(received_[sender]),
          compress::Expected::at_most(expected), static_cast<int>(sender));
      poisoned_ |= (views_[sender].header.flags & Header::kPoison) != 0;
    }
  }

  std::span<std::byte> encode_sums(std::span<std::byte> room) {
    const Stopwatch watch(&exchange_.stats.select_seconds, &exchange_.stats.encode_seconds,
                          &exchange_.stats.add_seconds);
    Header header = exchange_.header;
    header.kind = Header::Kind::sum;
    if (poisoned_) header.flags |= Header::kPoison;
    kernels::RandomKey random = exchange_.random;
    random.stage += part_.partition.owners();
    const auto message =
        exchange_.compressor.encode_sums(exchange_.exec,
                                         {.part = part_,
                                          .header = header,
                                          .random = random,
                                          .encode_seconds = &exchange_.stats.encode_seconds,
                                          .add_seconds = &exchange_.stats.add_seconds},
                                         views_, exchange_.owned, room);
    exchange_.stats.kept +=
        part_.any_k ? exchange_.owned.chosen.index.size() : part_.owner_k[self_];
    return message;
  }

  Exchange& exchange_;
  Workspace& workspace_;
  const compress::Part& part_;
  const compress::Codings& codings_;
  std::size_t ranks_, self_;
  std::span<std::uint64_t> received_;
  std::span<MessageView> views_;
  std::span<std::span<std::byte>> contributions_, sums_;  // messages by sender
  bool poisoned_ = false;                                 // as far as this rank knows
};

}  // namespace

std::uint64_t balanced_wire_bytes(const CostShape& shape) {
  if (shape.count == 0) return 0;
  const auto ranks = static_cast<std::uint64_t>(shape.ranks);
  const std::uint64_t count = (shape.count + ranks - 1) / ranks;
  const std::uint64_t k = std::min((shape.k + ranks - 1) / ranks, count);
  return 2 * (ranks - 1) * compress::message_bytes(count, k, shape.codings);
}

std::uint64_t balanced_network_bytes(const CostShape& shape) {
  return all_to_all_network_bytes(shape, balanced_wire_bytes(shape));
}

double balanced_pass_bytes(const CostShape& shape) {
  // Owners add what others keep of their share, and all write the sums: each as one message.
  return encode_pass(shape.count, shape.k) + add_pass(shape.count, shape.k, 2);
}

Rounds run_balanced(Exchange& exchange) {
  Balanced part(exchange);
  part.contribute();
  co_await exchange.world.start(exchange.exec);
  part.sum();
  co_await exchange.world.start(exchange.exec);
  part.finish();
}

}  // namespace winnow::comm
