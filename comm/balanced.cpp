// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/balanced.hpp"

#include <algorithm>

#include "compress/stopwatch.hpp"
#include "kernels/ordered_sum.hpp"

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

  void run() {
    encode();
    const auto contributions = rooms([&](std::uint32_t) {
      return compress::message_room(local_count(self()), part_.most_for(self()), codings_);
    });
    swap(exchange_.own, contributions);
    const auto sums = sum(contributions);

    const auto messages = rooms([&](std::uint32_t owner) {
      return compress::message_bytes(local_count(owner), part_.owner_k[owner], codings_);
    });
    encode_sums(sums, messages[self_]);
    received_[self_] = messages[self_].size();
    const auto to_all = workspace_.take<std::span<std::byte>>(ranks_);
    std::ranges::fill(to_all, messages[self_]);
    swap(to_all, messages);
    open_sums(messages);
    exchange_.left = sums;
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
      messages[owner] = workspace_.take<std::byte>(room(owner));
    }
    return messages;
  }

  /// Round 1, before: what this rank keeps, by owner.
  void encode() {
    const Stopwatch watch(&exchange_.stats.select_seconds, &exchange_.stats.encode_seconds);
    compress::Outbox out{.messages = rooms([&](std::uint32_t owner) {
                           return owner == self()
                                      ? 0
                                      : compress::message_room(local_count(owner),
                                                               part_.most_for(owner), codings_);
                         }),
                         .own = workspace_.take<float>(local_count(self()))};
    clear_gaps(out.own);
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
    exchange_.own_acc = out.own;
    exchange_.stats.kept += part_.k;
    poisoned_ = !out.finite || (exchange_.header.flags & Header::kPoison) != 0;
  }

  /// Zeros at local numbers that belong to no piece.
  void clear_gaps(std::span<float> local) const {
    std::uint64_t end = 0;
    for (const compress::Piece& piece : part_.pieces) {
      if (piece.own_count == 0) continue;
      std::ranges::fill(local.subspan(end, piece.own_begin - end), 0.0F);
      end = piece.own_begin + piece.own_count;
    }
    std::ranges::fill(local.subspan(end), 0.0F);
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
      exchange_.stats.wire_bytes += out[to].size();
    }
    world.wait(world.start(exchange_.exec), exchange_.deadline);
  }

  /// Round 1, after: the sums of the own positions, by local number; zeros where they are not
  /// finite or some rank's gradient was not, for then they are not used.
  std::span<float> sum(std::span<const std::span<std::byte>> contributions) {
    const Stopwatch watch(exchange_.stats.add_seconds);
    Header expected = exchange_.header;
    expected.kind = Header::Kind::contribution;
    expected.count = local_count(self());
    expected.k = part_.most_for(self());
    const auto sums = workspace_.take<float>(expected.count);
    // How much of it senders use differs from step to step: index and value of each, in lines.
    workspace_.reserve(ranks_ * (2 * sizeof(float) * expected.k + 128));
    const auto terms = workspace_.take<kernels::Term>(ranks_);
    for (std::size_t sender = 0; sender < ranks_; ++sender) {
      if (sender == self_) {
        terms[sender] = {.value = exchange_.own_acc};
        continue;
      }
      const MessageView view =
          compress::open(exchange_.exec, contributions[sender].first(received_[sender]), expected,
                         static_cast<int>(sender), codings_);
      poisoned_ |= (view.header.flags & Header::kPoison) != 0;
      terms[sender] = compress::term(view);
    }
    poisoned_ |= !kernels::ordered_sum(exchange_.exec, terms, 0, sums, 1);
    if (poisoned_) std::ranges::fill(sums, 0.0F);
    clear_gaps(sums);  // where a sign, say, is never 0
    return sums;
  }

  /// Round 2, before.
  void encode_sums(std::span<float> sums, std::span<std::byte> message) {
    const Stopwatch watch(&exchange_.stats.select_seconds, &exchange_.stats.encode_seconds);
    Header header = exchange_.header;
    header.kind = Header::Kind::sum;
    if (poisoned_) header.flags |= Header::kPoison;
    kernels::RandomKey random = exchange_.random;
    random.stage += part_.partition.owners();
    exchange_.compressor.encode_sums(exchange_.exec,
                                     {.part = part_,
                                      .header = header,
                                      .random = random,
                                      .encode_seconds = &exchange_.stats.encode_seconds},
                                     sums, message);
    exchange_.stats.kept += part_.owner_k[self_];
  }

  /// Round 2, after.
  void open_sums(std::span<const std::span<std::byte>> messages) {
    const Stopwatch watch(exchange_.stats.add_seconds);
    Header expected = exchange_.header;
    expected.kind = Header::Kind::sum;
    for (std::uint32_t owner = 0; owner < ranks_; ++owner) {
      expected.count = local_count(owner);
      expected.k = part_.owner_k[owner];
      views_[owner] = compress::open(exchange_.exec, messages[owner].first(received_[owner]),
                                     expected, static_cast<int>(owner), codings_);
      exchange_.poisoned |= (views_[owner].header.flags & Header::kPoison) != 0;
    }
    exchange_.sums = views_;
    compress::name_codings(views_[self_].header, exchange_.stats.coding);
  }

  Exchange& exchange_;
  Workspace& workspace_;
  const compress::Part& part_;
  const compress::Codings& codings_;
  std::size_t ranks_, self_;
  std::span<std::uint64_t> received_;
  std::span<MessageView> views_;
  bool poisoned_ = false;  // as far as this rank knows
};

}  // namespace

std::uint64_t balanced_wire_bytes(const CostShape& shape) {
  if (shape.count == 0) return 0;
  const auto ranks = static_cast<std::uint64_t>(shape.ranks);
  const std::uint64_t count = (shape.count + ranks - 1) / ranks;
  const std::uint64_t k = std::min((shape.k + ranks - 1) / ranks, count);
  return 2 * (ranks - 1) * compress::message_bytes(count, k, shape.codings);
}

void run_balanced(Exchange& exchange) {
  Balanced(exchange).run();
}

}  // namespace winnow::comm
