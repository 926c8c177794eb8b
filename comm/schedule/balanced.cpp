// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "comm/schedule/pass_bytes.hpp"
#include "comm/schedule/schedule.hpp"
#include "kernels/exec/stopwatch.hpp"

namespace winnow::comm {

namespace {

using compress::Header;
using compress::MessageView;
using kernels::Stopwatch;

/// The two rounds of one part; one member function per stage.
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

  /// Starts round 1: sends each owner what this rank keeps of its positions.
  void contribute() {
    const auto own = take_buffers(exchange_, [this](std::uint32_t owner) {
      return owner == self() ? 0 : most_bytes_for(owner);
    });
    encode_gradient(exchange_, Header::Kind::contribution, own);
    poisoned_ = (exchange_.header.flags & Header::kPoison) != 0;
    contributions_ =
        take_buffers(exchange_, [this](std::uint32_t) { return most_bytes_for(self()); });
    enqueue_all_to_all(exchange_, own, contributions_, received_,
                       message_size(exchange_, Header::Kind::contribution));
  }

  /// Ends round 1 and starts round 2: sends what this rank keeps of its sums to all.
  void sum() {
    open_contributions();
    sums_ = take_buffers(exchange_, [this](std::uint32_t owner) {
      return compress::message_bytes(local_count(owner), part_.owner_k[owner], codings_);
    });
    sums_[self_] = encode_sums(sums_[self_]);
    enqueue_all_gather(exchange_, sums_, received_, message_size(exchange_, Header::Kind::sum));
  }

  /// Ends round 2.
  void finish() {
    const Stopwatch watch(exchange_.stats.add_seconds);
    Header expected = exchange_.header;
    expected.kind = Header::Kind::sum;
    const auto incoming = workspace_.take<compress::Incoming>(ranks_);
    for (std::uint32_t owner = 0; owner < ranks_; ++owner) {
      expected = part_.of_owner(expected, owner);
      expected.k = part_.owner_k[owner];
      incoming[owner] = {sums_[owner].first(received_[owner]), part_.expect(expected),
                         static_cast<int>(owner)};
    }
    const std::uint16_t flags =
        exchange_.compressor.open_all(exchange_.exec, incoming, views_, exchange_.status);
    exchange_.poisoned |= (flags & Header::kPoison) != 0;
    exchange_.sums = views_;
    compress::name_codings(views_[self_].header, exchange_.stats.coding);
  }

 private:
  std::uint32_t self() const { return static_cast<std::uint32_t>(self_); }
  std::uint64_t local_count(std::uint32_t owner) const {
    return part_.partition.local_count(owner);
  }
  /// Bytes of the longest message that a rank may send to an owner.
  std::size_t most_bytes_for(std::uint32_t owner) const {
    const std::uint64_t count = local_count(owner), most_k = part_.most_for(owner);
    return exchange_.compressor.knows_support()
               ? compress::message_bytes(count, most_k, codings_)
               : compress::most_message_bytes(count, most_k, codings_);
  }

  /// Opens what other ranks keep of the positions that this rank sums.
  void open_contributions() {
    const Stopwatch watch(exchange_.stats.add_seconds);
    Header expected = part_.of_owner(exchange_.header, self());
    expected.kind = Header::Kind::contribution;
    expected.k = part_.most_for(self());
    const compress::Expected contribution = exchange_.compressor.knows_support()
                                                ? compress::Expected(expected)
                                                : compress::Expected::at_most(expected);
    const auto incoming = workspace_.take<compress::Incoming>(ranks_ - 1);
    for (std::size_t i = 0; i < incoming.size(); ++i) {
      const std::size_t sender = i < self_ ? i : i + 1;
      incoming[i] = {contributions_[sender].first(received_[sender]), contribution,
                     static_cast<int>(sender)};
    }
    const auto views = views_.first(incoming.size());
    const std::uint16_t flags =
        exchange_.compressor.open_all(exchange_.exec, incoming, views, exchange_.status);
    poisoned_ |= (flags & Header::kPoison) != 0;
    views_[ranks_ - 1] = {};  // this rank's slot; the views behind it move up into it
    std::ranges::rotate(views_.begin() + static_cast<std::ptrdiff_t>(self_), views_.end() - 1,
                        views_.end());
  }

  std::span<std::byte> encode_sums(std::span<std::byte> buffer) {
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
                                          .add_seconds = &exchange_.stats.add_seconds,
                                          .status = exchange_.status},
                                         views_, exchange_.owned, buffer);
    exchange_.stats.kept +=
        part_.variable_k ? exchange_.owned.chosen.index.size() : part_.owner_k[self_];
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
Rounds run(Exchange& exchange) {
  Balanced part(exchange);
  part.contribute();
  co_await exchange.world.start(exchange.exec);
  part.sum();
  co_await exchange.world.start(exchange.exec);
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
    .host_waits = HostWaits::for_sizes,
};

}  // namespace winnow::comm
