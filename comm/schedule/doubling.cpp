// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>

#include "comm/schedule/pass_bytes.hpp"
#include "comm/schedule/schedule.hpp"
#include "compress/partial.hpp"
#include "kernels/exec/stopwatch.hpp"

namespace winnow::comm {

namespace {

using compress::Expected;
using compress::Header;
using compress::MessageView;
using kernels::Stopwatch;

/// Who exchanges with whom. A power of two of places; the first `guests` of them seat two ranks.
struct Places {
  explicit Places(int ranks)
      : size(static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)))),
        guests(ranks - size) {}

  bool is_guest(int rank) const { return rank < 2 * guests && rank % 2 == 1; }
  /// Whether a guest sits at rank + 1.
  bool is_host(int rank) const { return rank < 2 * guests && rank % 2 == 0; }
  /// The place of a rank that is not a guest.
  int of(int rank) const { return rank < 2 * guests ? rank / 2 : rank - guests; }
  int rank_at(int place) const { return place < guests ? 2 * place : place + guests; }
  /// Ranks at places [begin, begin + places), with their guests.
  int ranks_at(int begin, int places) const {
    return places + std::clamp(guests - begin, 0, places);
  }

  int size, guests;
};

/// The rounds of one part; one member function per stage.
class Doubling {
 public:
  explicit Doubling(Exchange& exchange)
      : exchange_(exchange),
        compressor_(exchange.compressor),
        workspace_(*exchange.exec.workspace),
        places_(exchange.world.size()),
        self_(exchange.world.rank()) {}

  const Places& places() const { return places_; }

  /// Encodes what this rank keeps of its gradient: the sum so far.
  void encode() {
    const auto own = workspace_.take<std::span<std::byte>>(1);
    own[0] = take_buffer_for(1);
    encode_gradient(exchange_, Header::Kind::gradient, own);
    const Stopwatch watch(exchange_.stats.add_seconds);
    sum_ = compressor_.open(exchange_.exec, own[0], expected(1), self_);
    ranks_in_sum_ = 1;
    compress::name_codings(sum_.header, exchange_.stats.coding);
  }

  /// Sends the sum so far.
  void send(int peer) {
    if (sum_.bytes.empty()) {
      const Stopwatch watch(exchange_.stats.encode_seconds);
      compressor_.pack(exchange_.exec, sum_, take_buffer_for(ranks_in_sum_));
    }
    const Stopwatch watch(exchange_.stats.exchange_seconds);
    comm::send(exchange_, sum_.bytes, peer, size_of(ranks_in_sum_));
  }

  /// Receives the sum of `ranks` ranks.
  void receive(int peer, int ranks) {
    receipt_ = {.buffer = take_buffer_for(ranks), .peer = peer, .ranks = ranks};
    const Stopwatch watch(exchange_.stats.exchange_seconds);
    comm::receive(exchange_, receipt_.buffer, peer, &receipt_.bytes, size_of(ranks));
  }

  /// Replaces the sum by the received one.
  void replace() {
    const Stopwatch watch(exchange_.stats.add_seconds);
    sum_ = open();
  }

  /// Adds the received sum, which is of higher ranks unless `peer` is lower.
  void add() {
    const Stopwatch watch(exchange_.stats.add_seconds);
    const MessageView other = open();
    ranks_in_sum_ += receipt_.ranks;
    const bool lower = receipt_.peer < self_;
    sum_ = compressor_.merge(exchange_.exec, header_of(ranks_in_sum_), lower ? other : sum_,
                             lower ? sum_ : other);
  }

  void finish() {
    const auto outcome = workspace_.take<MessageView>(1);
    outcome[0] = sum_;
    exchange_.messages = outcome;
    exchange_.poisoned |= (sum_.header.flags & Header::kPoison) != 0;
  }

 private:
  struct Receipt {
    std::span<std::byte> buffer;
    int peer, ranks;
    std::uint64_t bytes = 0;
  };

  /// Header of the sum of `ranks` ranks; k is the most that it may carry.
  Header header_of(int ranks) const {
    return compress::partial_header(exchange_.header, ranks, compressor_.codings());
  }
  MessageSize size_of(int ranks) const { return message_size(exchange_, header_of(ranks).kind); }
  Expected expected(int ranks) const {
    const Header header = header_of(ranks);
    const bool k_is_known = ranks == 1 || compressor_.draws();
    return k_is_known ? exchange_.part.expect(header) : Expected::at_most(header);
  }
  std::span<std::byte> take_buffer_for(int ranks) const {
    return take_buffer(exchange_, compress::most_bytes(header_of(ranks), compressor_.codings()));
  }
  MessageView open() const {
    return compressor_.open(exchange_.exec, receipt_.buffer.first(receipt_.bytes),
                            expected(receipt_.ranks), receipt_.peer);
  }

  Exchange& exchange_;
  const compress::Compressor& compressor_;
  Workspace& workspace_;
  Places places_;
  int self_;
  MessageView sum_ = {};
  int ranks_in_sum_ = 0;
  Receipt receipt_ = {};
};

/// Bytes of the message with the sum of `ranks` ranks.
std::uint64_t sum_bytes(const CostShape& shape, int ranks) {
  if (ranks == 1) return compress::message_bytes(shape.count, shape.k, shape.codings);
  if (shape.codings.drawn()) return compress::partial_bytes(shape.count, shape.k, shape.codings);
  const auto count = static_cast<double>(shape.count), k = static_cast<double>(shape.k);
  const double overlap = shape.overlap.value_or(shape.count == 0 ? 0 : k / count);
  double in_union = 0;
  for (int rank = 0; rank < ranks; ++rank) in_union += k - overlap * in_union;
  const auto rounded = static_cast<std::uint64_t>(std::llround(std::min(in_union, count)));
  return compress::partial_bytes(shape.count, rounded, shape.codings);
}

/// sum_bytes with a cache for the last answer.
class SumBytes {
 public:
  explicit SumBytes(const CostShape& shape) : shape_(shape) {}
  std::uint64_t operator()(int ranks) {
    if (ranks != ranks_) bytes_ = sum_bytes(shape_, ranks);
    ranks_ = ranks;
    return bytes_;
  }

 private:
  const CostShape& shape_;
  int ranks_ = 0;
  std::uint64_t bytes_ = 0;
};

/// Bytes that a rank sends: a message per round, each for about twice as many ranks as the last,
/// and the outcome to its guest if it has one.
std::uint64_t rank_bytes(const CostShape& shape, int rank) {
  const Places places(shape.ranks);
  if (places.is_guest(rank)) return sum_bytes(shape, 1);
  std::uint64_t bytes = places.is_host(rank) ? sum_bytes(shape, shape.ranks) : 0;
  for (int step = 1; step < places.size; step *= 2) {
    bytes += sum_bytes(shape, places.ranks_at(places.of(rank) / step * step, step));
  }
  return bytes;
}

/// Bytes of rank 0, the busiest.
std::uint64_t wire_bytes(const CostShape& shape) {
  return rank_bytes(shape, 0);
}

std::uint64_t network_bytes(const CostShape& shape) {
  if (shape.topology == nullptr) return wire_bytes(shape);
  const Topology& topology = *shape.topology;
  const Places places(shape.ranks);
  std::vector<std::uint64_t> of_node(static_cast<std::size_t>(topology.nodes()));
  const auto count = [&](int from, int to, std::uint64_t bytes) {
    const int node = topology.node_of(from);
    if (topology.node_of(to) != node) of_node[static_cast<std::size_t>(node)] += bytes;
  };
  SumBytes bytes(shape);
  for (int guest = 1; guest < 2 * places.guests; guest += 2) count(guest, guest - 1, bytes(1));
  for (int step = 1; step < places.size; step *= 2) {
    for (int place = 0; place < places.size; ++place) {
      const int begin = place / step * step;
      count(places.rank_at(place), places.rank_at(place ^ step),
            bytes(places.ranks_at(begin, step)));
    }
  }
  for (int host = 0; host < 2 * places.guests; host += 2) {
    count(host, host + 1, bytes(shape.ranks));
  }
  return std::ranges::max(of_node);
}

std::uint64_t messages(const CostShape& shape) {
  const Places places(shape.ranks);
  const auto exchanges =
      static_cast<std::uint64_t>(std::countr_zero(static_cast<unsigned>(places.size)));
  return exchanges + (places.guests > 0 ? 1 : 0);
}

double pass_bytes(const CostShape& shape) {
  // Every list is read, merged and coded again; the last one is written into the elements.
  const auto ranks = static_cast<std::uint64_t>(shape.ranks);
  double bytes = encode_pass(shape.count, shape.k, shape.parameters);
  for (std::uint64_t in_sum = 2; in_sum < 2 * ranks; in_sum *= 2) {
    const std::uint64_t merged = std::min(in_sum * shape.k, shape.count);
    bytes += merged == shape.count ? kReducePass * static_cast<double>(merged)
                                   : 3 * kCoded * static_cast<double>(merged);
  }
  return bytes + add_pass(shape.count, std::min(ranks * shape.k, shape.count), 1);
}

/// Bytes of the sum of all ranks.
std::uint64_t outcome_bytes(const CostShape& shape) {
  return sum_bytes(shape, shape.ranks);
}

/// Recursive doubling over sparse lists (Renggli et al., SparCML, SC 2019; Thakur et al., 2005). P
/// ranks sit at B = 2^n places. The first P - B places seat two ranks: place p has host 2 p and
/// guest 2 p + 1. Every other place p has rank p + (P - B). Rounds:
///   1. Guests send their messages to their hosts, who add them to their own.
///   2. Places p and p xor 1 exchange what they have and add it, then p and p xor 2, p xor 4, ...
///   3. Hosts send the sum to their guests.
/// Both sides add the lower places' sum + the upper places', so both get the same bits. With m[r]
/// the messages as they travel, place p begins with m[2 p] + m[2 p + 1] or with its single message,
/// and the sum of places [p, p + 2 n) is that of [p, p + n) + that of [p + n, p + 2 n). Places
/// exchange unions with float32 values (compress/partial.hpp), which carry every position if that
/// is no longer.
Rounds run(Exchange& exchange) {
  Transport& world = exchange.world;
  Doubling part(exchange);
  const Places& places = part.places();
  const int self = world.rank();
  part.encode();
  if (places.is_guest(self)) {
    // Two starts: a host answers only after it has heard from the guests of other parts, too.
    part.send(self - 1);
    co_await world.start(exchange.exec);
    part.receive(self - 1, world.size());
    co_await world.start(exchange.exec);
    part.replace();
    part.finish();
    co_return;
  }
  if (places.is_host(self)) {
    part.receive(self + 1, 1);
    co_await world.start(exchange.exec);
    part.add();
  }
  const int place = places.of(self);
  for (int step = 1; step < places.size; step *= 2) {
    const int other = place ^ step;
    part.send(places.rank_at(other));
    part.receive(places.rank_at(other), places.ranks_at(other / step * step, step));
    co_await world.start(exchange.exec);
    part.add();
  }
  if (places.is_host(self)) {
    part.send(self + 1);
    co_await world.start(exchange.exec);
  }
  part.finish();
}

}  // namespace

constinit const Schedule kDoubling{
    .name = "doubling",
    .summary = "pairs, then pairs of pairs, exchange the union of what they have",
    .run = run,
    .costs = {.wire_bytes = wire_bytes,
              .messages = messages,
              .pass_bytes = pass_bytes,
              .network_bytes = network_bytes,
              .outcome_bytes = outcome_bytes,
              .rank_bytes = rank_bytes},
    .outcome = Header::Kind::partial,
};

}  // namespace winnow::comm
