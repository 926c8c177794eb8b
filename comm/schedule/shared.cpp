// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <string>
#include <tuple>
#include <winnow/error.hpp>

#include "comm/schedule/pass_bytes.hpp"
#include "comm/schedule/schedule.hpp"
#include "kernels/exec/stopwatch.hpp"
#include "kernels/exec/together.hpp"
#include "kernels/memory_ops.hpp"

namespace winnow::comm {

namespace {

using compress::Header;
using compress::MessageView;
using compress::ReceivedMessage;
using compress::Taken;
using kernels::Stopwatch;

/// Views bytes, aligned for floats, as floats.
std::span<float> as_floats(std::span<std::byte> bytes) {
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

/// The three rounds of one part; one member function per stage. Buffers whose size varies with the
/// turn are allocated for the largest.
class Shared {
 public:
  explicit Shared(Exchange& exchange)
      : exchange_(exchange),
        compressor_(exchange.compressor),
        part_(exchange.part),
        ranks_(static_cast<std::size_t>(exchange.wire.ranks)),
        self_(static_cast<std::size_t>(exchange.wire.rank)),
        most_k_(std::ranges::max(exchange.part.owner_k)),
        turn_(part_.pieces.empty() ? 0 : exchange.part.pieces.front().state->turn % ranks_) {
    std::tie(received_, supports_) = workspace().take<std::uint64_t, MessageView>(ranks_);
    for (const compress::Piece& piece : part_.pieces) ++piece.state->turn;
    compress::become_owner(part_, compressor_, owner_of(self_));
    compress::place_pieces(exchange_.exec, part_, exchange_.owned);
  }

  /// Starts round 1: sends the support that this rank chooses to all.
  void select() {
    messages_ = take_buffers(exchange_, [&](std::uint32_t rank) {
      return part_.shapes.supports[owner_of(rank)].bytes();
    });
    {
      const Stopwatch watch(&exchange_.wire.stats.select_seconds,
                            &exchange_.wire.stats.encode_seconds);
      compressor_.select(exchange_.exec, job_of(exchange_, Header::Kind::support),
                         messages_[self_]);
      exchange_.undo = Accumulated{};
    }
    enqueue_all_gather(exchange_, messages_, received_);
  }

  /// Ends round 1 and starts round 2: sends each chooser this rank's values at its support.
  void contribute() {
    open_supports();
    {
      const Stopwatch watch(exchange_.wire.stats.encode_seconds);
      take_values();
    }
    messages_ = take_buffers(exchange_, [&](std::uint32_t) { return most_values_bytes(); });
    const std::size_t bytes = values_bytes(owner_of(self_));
    for (auto& message : messages_) message = message.first(bytes);
    mark_missing();
    enqueue_all_to_all(exchange_, outgoing_, messages_, received_);
  }

  /// Ends round 2 and starts round 3: sends the sums at the support that this rank chooses to all.
  void sum() {
    const std::uint32_t own = owner_of(self_);
    const std::uint64_t k = part_.owner_k[own];
    const auto terms = workspace().take<MessageView>(ranks_);
    {
      const Stopwatch watch(exchange_.wire.stats.add_seconds);
      const bool poisoned = open_values(Header::Kind::contribution, terms);
      if (poisoned) exchange_.header.flags |= Header::kPoison;
      terms[self_] = view_of(taken_[own].value);
    }
    const auto sums = take_floats(most_k_).first(k);
    auto message = std::as_writable_bytes(sums);
    if (!codings().exact()) {
      message = take_buffer(exchange_, most_values_bytes()).first(values_bytes(own));
    }
    compressor_.add(exchange_.exec, job_of(exchange_, Header::Kind::sum, part_.partition.owners()),
                    terms,
                    {.sum = sums, .message = codings().exact() ? std::span<std::byte>() : message});
    if (!codings().exact()) {  // what the coding misses is for the residual, at the end
      exchange_.owned.left = {.index = supports_[own].term.index, .value = sums};
    }
    messages_ =
        take_buffers(exchange_, [&](std::uint32_t rank) { return values_bytes(owner_of(rank)); });
    mark_missing();
    messages_[self_] = message;
    enqueue_all_gather(exchange_, messages_, received_);
  }

  /// Ends round 3.
  void finish() {
    const Stopwatch watch(exchange_.wire.stats.add_seconds);
    const auto values = workspace().take<MessageView>(ranks_);
    exchange_.result.poisoned |= open_values(Header::Kind::sum, values);
    for (std::uint32_t owner = 0; owner < ranks_; ++owner) {
      supports_[owner] = compress::join_values(supports_[owner], values[rank_of(owner)]);
      exchange_.wire.stats.kept += part_.owner_k[owner];
    }
    exchange_.result.outcome = OwnerSums{supports_};
  }

 private:
  Workspace& workspace() const { return *exchange_.exec.workspace; }
  const compress::Codings& codings() const { return compressor_.codings(); }
  std::uint32_t owner_of(std::size_t rank) const {
    return static_cast<std::uint32_t>((rank + ranks_ - turn_) % ranks_);
  }
  std::size_t rank_of(std::uint32_t owner) const { return (owner + turn_) % ranks_; }

  /// Bytes of the values at an owner's support, and at the longest one.
  std::size_t values_bytes(std::uint32_t owner) const {
    return codings().exact() ? part_.owner_k[owner] * sizeof(float)
                             : part_.shapes.values[owner].bytes();
  }
  std::size_t most_values_bytes() const {
    return values_bytes(static_cast<std::uint32_t>(std::ranges::max_element(part_.owner_k) -
                                                   part_.owner_k.begin()));
  }

  std::span<float> take_floats(std::uint64_t count) const {
    return as_floats(take_buffer(exchange_, count * sizeof(float)));
  }

  void open_supports() {
    const Stopwatch watch(exchange_.wire.stats.add_seconds);
    Header expected = exchange_.header;
    expected.kind = Header::Kind::support;
    const auto incoming = workspace().take<ReceivedMessage>(ranks_);
    for (std::uint32_t owner = 0; owner < ranks_; ++owner) {
      const std::size_t rank = rank_of(owner);
      expected = part_.of_owner(expected, owner);
      expected.k = part_.owner_k[owner];
      incoming[owner] = {messages_[rank].first(received_[rank]),
                         {expected, part_.shapes.supports[owner]},
                         exchange_.wire.name_of(rank)};
    }
    exchange_.result.poisoned |= decode(exchange_, incoming, supports_);
  }

  /// Takes this rank's values at all supports, and makes messages of them.
  void take_values() {
    const auto [taken, coded, outgoing] =
        workspace().take<Taken, compress::TakenMessage, std::span<std::byte>>(ranks_);
    outgoing_ = outgoing;
    std::size_t others = 0;
    for (std::uint32_t owner = 0; owner < ranks_; ++owner) {
      const std::uint64_t k = part_.owner_k[owner];
      taken[owner] = {
          .owner = owner, .index = supports_[owner].term.index, .value = take_floats(k)};
      auto& message = outgoing_[rank_of(owner)];
      message = std::as_writable_bytes(taken[owner].value);
      if (codings().exact()) continue;
      message = take_buffer(exchange_, values_bytes(owner));
      const std::span<float> missed = take_floats(k);
      if (rank_of(owner) == self_) continue;  // its terms are not coded
      coded[others++] = {.taken = taken[owner], .missed = missed, .message = message};
    }
    const compress::EncodeJob job = job_of(exchange_, Header::Kind::contribution);
    compressor_.take(exchange_.exec, job, exchange_.owned, taken);
    taken_ = taken;
    exchange_.undo = Accumulated{taken};  // only now: a failed call puts back what has been taken
    compressor_.code_taken(exchange_.exec, job, exchange_.owned, coded.first(others));
  }

  /// In a stream-ordered call nobody notices a message that never comes. One without a header must
  /// not be taken for an older one, so its buffer holds NaN until it comes.
  void mark_missing() const {
    if (exchange_.course.status == nullptr || !codings().exact()) return;
    kernels::together(exchange_.exec, [&] {
      for (const std::span<std::byte> message : messages_) {
        kernels::fill(exchange_.exec, as_floats(message), std::numeric_limits<float>::quiet_NaN());
      }
    });
  }

  /// Uncoded values as a message that carries them.
  static MessageView view_of(std::span<const float> value) {
    return {.header = {.count = value.size(), .k = value.size()}, .term = {.value = value}};
  }

  /// Decodes the values that all ranks sent: contributions at this rank's support (none from
  /// itself), or sums at their own supports. Returns whether one is poisoned.
  bool open_values(Header::Kind kind, std::span<MessageView> views) const {
    const auto [incoming, decoded, senders] =
        workspace().take<ReceivedMessage, MessageView, std::size_t>(ranks_);
    const bool of_sums = kind == Header::Kind::sum;
    Header expected = exchange_.header;
    expected.kind = kind;
    std::size_t count = 0;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      if (!of_sums && rank == self_) continue;
      const auto bytes = messages_[rank].first(received_[rank]);
      expected.owner = owner_of(of_sums ? rank : self_);
      expected.count = expected.k = part_.owner_k[expected.owner];
      if (!codings().exact()) {
        incoming[count] = {
            bytes, {expected, part_.shapes.values[expected.owner]}, exchange_.wire.name_of(rank)};
        senders[count++] = rank;
        continue;
      }
      if (bytes.size() != expected.k * sizeof(float)) {
        throw CommError("rank " + std::to_string(exchange_.wire.name_of(rank)) + " sent " +
                        std::to_string(bytes.size()) + " bytes of values at a support that takes " +
                        std::to_string(expected.k * sizeof(float)));
      }
      views[rank] = view_of(as_floats(bytes));
    }
    const bool poisoned = decode(exchange_, incoming.first(count), decoded.first(count));
    for (std::size_t i = 0; i < count; ++i) views[senders[i]] = decoded[i];
    return poisoned;
  }

  Exchange& exchange_;
  const compress::Compressor& compressor_;
  compress::Part& part_;
  std::size_t ranks_, self_;
  std::uint64_t most_k_;  ///< the most that any rank chooses
  std::size_t turn_;
  std::span<std::uint64_t> received_;
  std::span<MessageView> supports_;                      // by owner
  std::span<const Taken> taken_;                         // likewise
  std::span<std::span<std::byte>> outgoing_, messages_;  // by rank
};

void plan(compress::Part& part, const compress::Compressor& compressor, int, int) {
  compress::plan_supports(part, compressor.codings());
}

/// (P - 1) supports of k / P positions and 2 (P - 1) times their values; indices travel once.
std::uint64_t wire_bytes(const CostShape& shape) {
  if (shape.count == 0) return 0;
  const CostShape share = share_of_owner(shape);
  const std::size_t values = share.codings.exact()
                                 ? share.k * sizeof(float)
                                 : compress::message_bytes(share.k, share.k, share.codings);
  return one_to_each_other(shape) *
         (compress::message_bytes(share.count, share.k, share.codings.without_values()) +
          2 * values);
}

std::uint64_t messages(const CostShape& shape) {
  return 3 * one_to_each_other(shape);
}

double pass_bytes(const CostShape& shape) {
  // Values taken, added and written, as one message each.
  return encode_pass(shape.count, shape.k, shape.parameters) + add_pass(shape.count, shape.k, 3);
}

/// All ranks send values at one support (Chen et al., ScaleCom, NeurIPS 2020, but with a chooser
/// per share of the positions instead of one for all). In call number t of a part, rank r chooses
/// for owner (r - t) mod P of kernels::Partition, so every rank takes its turn. Three rounds:
///   1. Each rank chooses, from its own acc, the support at its owner's positions, and sends it to
///      all.
///   2. Each rank takes its acc at all supports, and sends each chooser the values at its support.
///      Choosers add in rank order, value i as ((0 + v[0][i]) + v[1][i]) + ..., where v[chooser] is
///      the chooser's own acc, uncoded.
///   3. Each chooser sends the sums to all. The error of their coding goes into its residual. With
/// float32 values nothing of acc is left at the supports, and rounds 2 and 3 have no headers: those
/// of round 1 say what follows. Winnow does not use the transport's allreduce here: choosers add in
/// the same order over any transport, with as many bytes in fewer rounds, and do not block other
/// parts.
Rounds run(Exchange& exchange) {
  Shared part(exchange);
  part.select();
  co_await exchange.wire.world.start(exchange.exec);
  part.contribute();
  co_await exchange.wire.world.start(exchange.exec);
  part.sum();
  co_await exchange.wire.world.start(exchange.exec);
  part.finish();
}

}  // namespace

constinit const Schedule kShared{
    .name = "shared",
    .summary = "one support, which ranks choose in turn, sum at and all-gather",
    .partitioned = true,
    .run = run,
    .costs = {.wire_bytes = wire_bytes,
              .messages = messages,
              .pass_bytes = pass_bytes,
              .outcome_bytes = one_from_each_owner},
    .outcome = Header::Kind::sum,
    .own_support = true,
    .takes_turns = true,
    .plan = plan,
};

}  // namespace winnow::comm
