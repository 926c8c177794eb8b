// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <variant>

#include "comm/schedule/pass_bytes.hpp"
#include "comm/schedule/schedule.hpp"
#include "compress/partial.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/stopwatch.hpp"
#include "kernels/memory_ops.hpp"

namespace winnow::comm {

namespace {

using compress::Expected;
using compress::Header;
using compress::MessageView;
using compress::Union;
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

/// The role of a rank in a round.
struct Round {
  int peer;
  bool sends;    ///< the sum so far
  int receives;  ///< the sum of as many ranks; 0: nothing
};
constexpr std::size_t kMostRounds = 2 + std::numeric_limits<int>::digits;

/// Calls add(round) with each round of a rank, in order.
template <class Add>
void for_each_round(const Places& places, int rank, const Add& add) {
  if (places.is_guest(rank)) {
    // Two starts: a host answers only after it has received from the guests of other parts, too.
    add({.peer = rank - 1, .sends = true, .receives = 0});
    add({.peer = rank - 1, .sends = false, .receives = places.size + places.guests});
    return;
  }
  const bool is_host = places.is_host(rank);
  if (is_host) add({.peer = rank + 1, .sends = false, .receives = 1});
  const int place = places.of(rank);
  for (int step = 1; step < places.size; step *= 2) {
    const int other = place ^ step;
    add({.peer = places.rank_at(other),
         .sends = true,
         .receives = places.ranks_at(other / step * step, step)});
  }
  if (is_host) add({.peer = rank + 1, .sends = true, .receives = 0});
}

/// The sums that a rank sends, makes and receives.
void plan(compress::Part& part, const compress::Compressor& compressor, int ranks, int rank) {
  int in_sum = 1;
  for_each_round(Places(ranks), rank, [&](const Round& round) {
    if (round.receives == 0) return;
    compress::plan_partial(part, round.receives, compressor.codings());
    if (round.receives < ranks) in_sum += round.receives;
    compress::plan_partial(part, in_sum, compressor.codings());
  });
  compress::plan_partial(part, ranks, compressor.codings());
}

/// The rounds of one part; one member function per stage.
class Doubling {
 public:
  explicit Doubling(Exchange& exchange)
      : exchange_(exchange),
        compressor_(exchange.compressor),
        workspace_(*exchange.exec.workspace),
        places_(exchange.wire.ranks),
        self_(exchange.wire.rank),
        sends_sum_(places_.is_host(self_) || exchange.course.one_outcome),
        counts_(comm::needs_counts(exchange, Header::Kind::partial)) {}

  /// This rank's rounds.
  std::span<const Round> rounds() const {
    const auto rounds = workspace_.take<Round>(kMostRounds);
    std::size_t count = 0;
    for_each_round(places_, self_, [&](const Round& round) { rounds[count++] = round; });
    return rounds.first(count);
  }

  /// Encodes what this rank keeps of its gradient: the sum so far.
  void encode() {
    const auto own = workspace_.take<std::span<std::byte>>(1);
    own[0] = take_buffer_for(1);
    encode_gradient(exchange_, Header::Kind::gradient, own);
    const Stopwatch watch(exchange_.wire.stats.add_seconds);
    const auto* const decoded = std::get_if<Decoded>(&exchange_.undo);
    const MessageView sum =
        decoded != nullptr
            ? decoded->messages.front()
            : compressor_.decode(exchange_.exec, own[0],
                                 compressor_.expect(exchange_.header, longest(1)), name_of(self_));
    sum_ = sum;
    ranks_in_sum_ = 1;
    name_codings(exchange_, sum.header);
  }

  /// Whether a round begins with an exchange of how many elements sums have.
  bool needs_counts(const Round& round) const {
    return counts_ && ((round.sends && has_open_size(ranks_in_sum_)) ||
                       (round.receives > 0 && has_open_size(round.receives)));
  }
  Counts count(const Round& round) {
    Counts counts(exchange_, "elements", 1);
    if (round.sends && has_open_size(ranks_in_sum_)) {
      const auto* const both = std::get_if<Union>(&sum_);
      const auto size = both != nullptr ? both->size_word() : counts.word_of(sum().header.k);
      counts.send(size, round.peer);
      counts.bring(size);
    }
    if (round.receives > 0 && has_open_size(round.receives)) {
      counts.receive(round.peer, header_of(round.receives).k);
    }
    return counts;
  }
  /// Takes the counts that have arrived: finalizes this rank's union and expects the peer's.
  void take_counts(const Round& round, const Counts& counts) {
    if (round.sends && std::holds_alternative<Union>(sum_)) {
      const Stopwatch watch(exchange_.wire.stats.add_seconds);
      finalize(counts.own<std::uint64_t>(0).front());
    }
    if (counts.theirs().empty()) return;
    expected_ = expect_counted(exchange_, header_of(round.receives), counts.theirs().front());
  }

  /// Enqueues a round: sends this rank's sum so far, and receives the sums of others.
  void exchange(const Round& round) {
    if (round.sends) send(round.peer);
    if (round.receives > 0) receive(round.peer, round.receives);
  }

  /// Ends it: takes in what came, if anything did.
  void take_in(const Round& round) {
    if (round.receives == 0) return;
    const Stopwatch watch(exchange_.wire.stats.add_seconds);
    const MessageView other = decode();
    if (round.receives == exchange_.wire.ranks) {
      sum_ = other;
      return;
    }
    const bool is_lower = round.peer < self_;
    const MessageView &first = is_lower ? other : sum(), &second = is_lower ? sum() : other;
    ranks_in_sum_ += round.receives;
    if (ranks_in_sum_ == exchange_.wire.ranks && !sends_sum_) {
      end_with(first, second);
      return;
    }
    sum_ = compressor_.merge(exchange_.exec, header_of(ranks_in_sum_), first, second,
                             exchange_.course.status);
    const auto* const both = std::get_if<Union>(&sum_);
    if (!counts_ && both != nullptr) finalize(kernels::read(exchange_.exec, both->size));
  }

  /// Ends with the sum, or the union that it will be, unless it ended with the last two before.
  void finish() {
    if (!std::holds_alternative<Unfinished>(exchange_.result.outcome)) return;
    if (const auto* const both = std::get_if<Union>(&sum_)) {
      exchange_.result.outcome = *both;
      note_poison(both->header);
    } else {
      end_with(sum());
    }
  }

 private:
  struct Receipt {
    std::span<std::byte> buffer;
    Expected expected;
    int peer;
    std::uint64_t bytes = 0;
  };

  template <class... Messages>
  void end_with(const Messages&... messages) {
    const auto outcome = workspace_.take<MessageView>(sizeof...(messages));
    std::ranges::copy(std::array{messages...}, outcome.begin());
    exchange_.result.outcome = Terms{outcome};
    for (const MessageView& message : outcome) note_poison(message.header);
  }
  void note_poison(const Header& header) {
    exchange_.result.poisoned |= (header.flags & Header::kPoison) != 0;
  }

  /// The sum so far, which is no Union.
  MessageView& sum() { return std::get<MessageView>(sum_); }

  int name_of(int rank) const { return exchange_.wire.name_of(static_cast<std::size_t>(rank)); }
  /// Whether the gradient decides the size of the message with the sum of `ranks` ranks.
  bool has_open_size(int ranks) const {
    return comm::has_open_size(exchange_, header_of(ranks).kind);
  }

  void send(int peer) {
    if (!sum().is_packed()) {
      const Stopwatch watch(exchange_.wire.stats.encode_seconds);
      compressor_.pack(exchange_.exec, sum(), take_buffer_for(ranks_in_sum_),
                       exchange_.course.status);
    }
    const Stopwatch watch(exchange_.wire.stats.exchange_seconds);
    comm::send(exchange_, sum().bytes, peer);
  }

  void receive(int peer, int ranks) {
    receipt_ = {.buffer = take_buffer_for(ranks), .expected = expected(ranks), .peer = peer};
    if (const auto& shape = receipt_.expected.shape) {
      receipt_.buffer = receipt_.buffer.first(shape->bytes());
    }
    const Stopwatch watch(exchange_.wire.stats.exchange_seconds);
    exchange_.wire.world.recv(receipt_.buffer, peer, &receipt_.bytes);
  }

  void finalize(std::uint64_t k) {
    sum_ = compressor_.finalize(exchange_.exec, std::get<Union>(sum_), k, exchange_.course.status);
  }

  /// Header of the sum of `ranks` ranks; k is the most that it may carry.
  Header header_of(int ranks) const {
    return compress::partial_header(exchange_.header, exchange_.part, ranks);
  }
  Expected expected(int ranks) const {
    if (!has_open_size(ranks)) return {header_of(ranks), longest(ranks)};
    return counts_ ? expected_ : Expected::at_most(header_of(ranks));
  }
  /// The longest message with the sum of so many ranks.
  const compress::Shape& longest(int ranks) const {
    const compress::Part& part = exchange_.part;
    return ranks == 1 ? part.shapes.gradients.front() : part.partial_of(ranks).longest;
  }
  std::span<std::byte> take_buffer_for(int ranks) const {
    return take_buffer(exchange_, longest(ranks).bytes());
  }
  MessageView decode() const {
    const compress::ReceivedMessage incoming{receipt_.buffer.first(receipt_.bytes),
                                             receipt_.expected, name_of(receipt_.peer)};
    MessageView view;
    (void)comm::decode(exchange_, {&incoming, 1}, {&view, 1});
    return view;
  }

  Exchange& exchange_;
  const compress::Compressor& compressor_;
  Workspace& workspace_;
  Places places_;
  int self_;
  bool sends_sum_;  ///< the sum of all is to be one message
  bool counts_;     ///< ranks exchange how long sums are before they send them
  compress::Merged sum_ = {};
  int ranks_in_sum_ = 0;
  Expected expected_ = Header();  ///< the next sum that comes
  Receipt receipt_{.buffer = {}, .expected = Header(), .peer = 0};
};

/// Bytes of the message with the sum of `ranks` ranks.
std::uint64_t sum_bytes(const CostShape& shape, int ranks) {
  if (ranks == 1) return compress::message_bytes(shape.count, shape.k, shape.codings);
  const auto partial_bytes = [&](std::uint64_t k) {
    return compress::shortest_partial(shape.count, k, shape.codings).shape.bytes();
  };
  if (shape.codings.drawn()) return partial_bytes(shape.k);
  const auto count = static_cast<double>(shape.count), k = static_cast<double>(shape.k);
  const double overlap = shape.overlap.value_or(shape.count == 0 ? 0 : k / count);
  double in_union = 0;
  for (int rank = 0; rank < ranks; ++rank) in_union += k - overlap * in_union;
  return partial_bytes(static_cast<std::uint64_t>(std::llround(std::min(in_union, count))));
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
  // Lists are read, merged and coded again. The sum of all is, too, if someone has a guest; else
  // the two lists that it is made of are written into the elements.
  const auto ranks = static_cast<std::uint64_t>(shape.ranks);
  const bool sends_sum = Places(shape.ranks).guests > 0 || shape.one_outcome;
  const std::uint64_t lists = ranks > 1 && !sends_sum ? 2 : 1;
  double bytes = encode_pass(shape.count, shape.k, shape.parameters);
  for (std::uint64_t in_sum = 2; in_sum < (sends_sum ? 2 * ranks : ranks); in_sum *= 2) {
    const std::uint64_t merged = std::min(in_sum * shape.k, shape.count);
    bytes += merged == shape.count ? kReducePass * static_cast<double>(merged)
                                   : 3 * kCoded * static_cast<double>(merged);
  }
  return bytes + add_pass(shape.count, std::min(ranks / lists * shape.k, shape.count),
                          static_cast<double>(lists));
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
/// and the sum of places [p, p + 2 n) is the sum of [p, p + n) plus the sum of [p + n, p + 2 n).
/// Places exchange unions with float32 values (compress/partial.hpp), which carry every position if
/// that is no longer. Where sizes do not travel with messages, ranks first exchange how many
/// elements unions have. A rank that does not send the sum of all makes no list of it: it ends with
/// the last two sums.
Rounds run(Exchange& exchange) {
  Transport& world = exchange.wire.world;
  Doubling part(exchange);
  part.encode();
  for (const Round& round : part.rounds()) {
    if (part.needs_counts(round)) {
      Counts elements = part.count(round);
      co_await exchange_counts(elements);
      part.take_counts(round, elements);
    }
    part.exchange(round);
    co_await world.start(exchange.exec);
    part.take_in(round);
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
    .plan = plan,
    .waits_from = 3,
};

}  // namespace winnow::comm
