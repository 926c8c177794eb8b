// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <tuple>

#include "comm/schedule/pass_bytes.hpp"
#include "comm/schedule/schedule.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/stopwatch.hpp"

namespace winnow::comm {

namespace {

using compress::Header;
using compress::MessageView;
using kernels::Stopwatch;

/// The rounds of one part; one member function per stage.
class Balanced {
 public:
  explicit Balanced(Exchange& exchange)
      : exchange_(exchange),
        part_(exchange.part),
        ranks_(static_cast<std::size_t>(exchange.wire.ranks)),
        self_(static_cast<std::size_t>(exchange.wire.rank)) {
    std::tie(received_, incoming_, views_) =
        workspace().take<std::uint64_t, compress::ReceivedMessage, MessageView>(ranks_);
    const auto most_bytes = [this](std::uint32_t owner) {
      return part_.shapes.gradients[owner].bytes();
    };
    own_ = take_buffers(
        exchange_, [&](std::uint32_t owner) { return owner == self() ? 0 : most_bytes(owner); });
    contributions_ = take_buffers(exchange_, [&](std::uint32_t) { return most_bytes(self()); });
  }

  /// Where only the support says how long contributions are: selects, and says how many elements
  /// this rank keeps of each owner's positions, by where they begin and end among all.
  Counts count() {
    choose_gradient(exchange_);
    Counts counts(exchange_, "elements", ranks_, Counts::Form::range);
    const auto begin = std::as_bytes(chosen().device_begin);
    for (std::size_t step = 1; step < ranks_; ++step) {
      const std::size_t to = (self_ + step) % ranks_, from = (self_ + ranks_ - step) % ranks_;
      counts.send(begin.subspan(to * sizeof(std::uint32_t), 2 * sizeof(std::uint32_t)),
                  static_cast<int>(to));
      counts.receive(static_cast<int>(from), part_.most_for[self()]);
    }
    counts.bring(begin);
    return counts;
  }
  /// Takes the counts that have arrived, and cuts receive buffers to them.
  void take_counts(const Counts& counts) {
    std::ranges::copy(counts.own<std::uint32_t>(0), chosen().begin.begin());
    const auto [k, shapes] = workspace().take<std::uint64_t, compress::Shape>(ranks_);
    for (std::size_t step = 1; step < ranks_; ++step) {
      const std::size_t from = (self_ + ranks_ - step) % ranks_;
      k[from] = counts.theirs()[step - 1];
      shapes[from] = compress::shape_of(part_.partition.local_count(self()), k[from],
                                        exchange_.compressor.codings());
      contributions_[from] = contributions_[from].first(shapes[from].bytes());
    }
    counted_ = {k, shapes};
  }

  /// Encodes what this rank keeps of each owner's positions.
  void encode() {
    const Header::Kind kind = Header::Kind::contribution;
    if (counted_) {
      encode_chosen(exchange_, kind, own_);
    } else {
      encode_gradient(exchange_, kind, own_);
    }
    poisoned_ = (exchange_.header.flags & Header::kPoison) != 0;
  }
  /// Exchanges the sizes of contributions.
  Counts count_contributions() { return count_bytes(exchange_, own_, contributions_); }
  void take_bytes(const Counts& bytes) { cut_to(exchange_, bytes, contributions_); }

  /// Starts round 1: sends it.
  void contribute() { enqueue_all_to_all(exchange_, own_, contributions_, received_); }

  /// Ends round 1: adds, and encodes what this rank keeps of its sums.
  void sum() {
    open_contributions();
    sums_ = take_buffers(exchange_,
                         [this](std::uint32_t owner) { return part_.shapes.sums[owner].bytes(); });
    sums_[self_] = encode_sums(sums_[self_]);
  }
  Counts count_sums() { return count_bytes(exchange_, sums_); }
  void take_bytes_of_sums(const Counts& bytes) { cut_to(exchange_, bytes, sums_); }

  /// Starts round 2: sends it to all.
  void share() { enqueue_all_gather(exchange_, sums_, received_); }

  /// Ends round 2.
  void finish() {
    const Stopwatch watch(exchange_.wire.stats.add_seconds);
    Header expected = exchange_.header;
    expected.kind = Header::Kind::sum;
    for (std::uint32_t owner = 0; owner < ranks_; ++owner) {
      expected = part_.of_owner(expected, owner);
      expected.k = part_.owner_k[owner];
      incoming_[owner] = {sums_[owner].first(received_[owner]),
                          exchange_.compressor.expect(expected, part_.shapes.sums[owner]),
                          exchange_.wire.name_of(owner)};
    }
    exchange_.result.poisoned |= decode(exchange_, incoming_, views_);
    exchange_.result.outcome = OwnerSums{views_};
    name_codings(exchange_, views_[self_].header);
  }

 private:
  /// The number of elements and the shape of each sender's contribution.
  struct Counted {
    std::span<const std::uint64_t> k;
    std::span<const compress::Shape> shapes;
  };

  Workspace& workspace() const { return *exchange_.exec.workspace; }
  std::uint32_t self() const { return static_cast<std::uint32_t>(self_); }
  const compress::Chosen& chosen() const { return std::get<Selected>(exchange_.undo).chosen; }

  /// The expected contribution of a sender. `most`: its header, with the most elements that it may
  /// have.
  compress::Expected expect(const Header& most, std::size_t sender) const {
    if (counted_) {
      return compress::Expected::exactly(most, counted_->k[sender], counted_->shapes[sender]);
    }
    if (has_open_size(exchange_, most.kind)) return compress::Expected::at_most(most);
    return {most, part_.shapes.gradients[self()]};
  }

  /// Decodes what other ranks keep of the positions that this rank sums.
  void open_contributions() {
    const Stopwatch watch(exchange_.wire.stats.add_seconds);
    Header expected = part_.of_owner(exchange_.header, self());
    expected.kind = Header::Kind::contribution;
    expected.k = part_.most_for[self()];
    const auto incoming = incoming_.first(ranks_ - 1);
    for (std::size_t i = 0; i < incoming.size(); ++i) {
      const std::size_t sender = i < self_ ? i : i + 1;
      incoming[i] = {contributions_[sender].first(received_[sender]), expect(expected, sender),
                     exchange_.wire.name_of(sender)};
    }
    const auto views = views_.first(incoming.size());
    poisoned_ |= decode(exchange_, incoming, views);
    views_[ranks_ - 1] = {};  // this rank's slot; the views behind it move up into it
    std::ranges::rotate(views_.begin() + static_cast<std::ptrdiff_t>(self_), views_.end() - 1,
                        views_.end());
  }

  std::span<std::byte> encode_sums(std::span<std::byte> buffer) {
    const Stopwatch watch(&exchange_.wire.stats.select_seconds,
                          &exchange_.wire.stats.encode_seconds, &exchange_.wire.stats.add_seconds);
    compress::EncodeJob job = job_of(exchange_, Header::Kind::sum, part_.partition.owners());
    if (poisoned_) job.header.flags |= Header::kPoison;
    const auto message =
        exchange_.compressor.encode_sums(exchange_.exec, job, views_, exchange_.owned, buffer);
    exchange_.wire.stats.kept += exchange_.owned.left.size();
    return message;
  }

  Exchange& exchange_;
  const compress::Part& part_;
  std::size_t ranks_, self_;
  std::span<std::uint64_t> received_;
  std::span<compress::ReceivedMessage> incoming_;
  std::span<MessageView> views_;
  std::span<std::span<std::byte>> own_;                   // messages by owner
  std::span<std::span<std::byte>> contributions_, sums_;  // messages by sender
  std::optional<Counted> counted_;                        // if counts were exchanged
  bool poisoned_ = false;                                 // by the headers that came
};

/// 2 (P - 1) messages, of k / P elements and of sums_k / P; as P grows, the bytes stay (P - 1) / P
/// of a constant.
std::uint64_t wire_bytes(const CostShape& shape) {
  if (shape.count == 0) return 0;
  const CostShape share = share_of_owner(shape);
  return one_to_each_other(shape) *
         (compress::message_bytes(share.count, share.k, shape.codings) +
          compress::message_bytes(share.count, share.sums_k, shape.codings));
}

double pass_bytes(const CostShape& shape) {
  // Owners add what others keep of their share, and all ranks write the sums: one message each.
  return encode_pass(shape.count, shape.k, shape.parameters) + add_pass(shape.count, shape.k, 1) +
         add_pass(shape.count, shape.sums_k, 1) +
         parameters_pass(shape.parameters, kChooseParameter);
}

/// Every rank owns the positions that kernels::Partition gives it (Li et al., Ok-Topk, PPoPP 2022,
/// but with owners that do not depend on the support). Two rounds:
///   1. Each rank sends each owner what it keeps of its gradient there. All of its own positions go
///      into the sum: they cost no wire, so they do not compete for k. Owners add in rank order,
///      position i as ((0 + m[0][i]) + m[1][i]) + ..., where m[owner] is its acc.
///   2. Each owner sends all ranks the elements of its sums that the compressor chooses; the rest
///      goes into its own residual.
/// Where the gradient decides how long messages are, and sizes do not travel with them, ranks first
/// exchange counts: how many elements each owner will get, or where each rank keeps as many as it
/// will, the bytes of messages of both rounds.
Rounds run(Exchange& exchange) {
  Balanced part(exchange);
  const bool counts_bytes = needs_counts(exchange, Header::Kind::sum);
  if (!counts_bytes && needs_counts(exchange, Header::Kind::contribution)) {
    Counts elements = part.count();
    co_await exchange_counts(elements);
    part.take_counts(elements);
  }
  part.encode();
  if (counts_bytes) {
    Counts bytes = part.count_contributions();
    co_await exchange_counts(bytes);
    part.take_bytes(bytes);
  }
  part.contribute();
  co_await exchange.wire.world.start(exchange.exec);
  part.sum();
  if (counts_bytes) {
    Counts bytes = part.count_sums();
    co_await exchange_counts(bytes);
    part.take_bytes_of_sums(bytes);
  }
  part.share();
  co_await exchange.wire.world.start(exchange.exec);
  part.finish();
}

}  // namespace

constinit const Schedule kBalanced{
    .name = "balanced",
    .summary = "owners sum their positions in rank order, keep and all-gather",
    .partitioned = true,
    .run = run,
    .costs = {.wire_bytes = wire_bytes,
              .messages = two_to_each_other,
              .pass_bytes = pass_bytes,
              .outcome_bytes = one_from_each_owner},
    .outcome = Header::Kind::sum,
    .waits_from = 1,
};

}  // namespace winnow::comm
