// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <string>
#include <winnow/error.hpp>

#include "comm/schedule/rests.hpp"
#include "comm/schedule/schedule.hpp"
#include "comm/schedule/shards.hpp"
#include "compress/partial.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/stopwatch.hpp"
#include "kernels/exec/together.hpp"
#include "kernels/feedback.hpp"
#include "kernels/memory_ops.hpp"
#include "kernels/terms.hpp"

namespace winnow::comm {
namespace {

using compress::Expected;
using compress::Header;
using compress::Incoming;
using compress::MessageView;
using compress::Piece;
using kernels::Stopwatch;

/// The three rounds of one part; one member function per stage.
class TwoLevel {
 public:
  explicit TwoLevel(Exchange& exchange)
      : exchange_(exchange),
        workspace_(*exchange.exec.workspace),
        rails_(*exchange.levels.rails),
        shards_(exchange.levels.shards->of_rail),
        folded_(exchange.levels.shards->folded),
        inner_schedule_(*exchange.levels.shards->inner),
        locals_(rails_.locals()),
        self_(exchange.wire.world.rank()),
        gathered_(workspace_.take<Gathered>(shards_.size())),
        inner_(workspace_.take<Exchange>(shards_.size())),
        messages_(workspace_.take<std::span<MessageView>>(shards_.size())),
        received_(workspace_.take<std::span<std::uint64_t>>(shards_.size())),
        outgoing_(workspace_.take<std::span<const float>>(exchange.part.pieces.size())) {
    take_scratch();
  }
  ~TwoLevel() {
    for (Shard& shard : shards_) shard.rounds = {};  // their frames are scratch of the call
  }
  TwoLevel(const TwoLevel&) = delete;
  TwoLevel& operator=(const TwoLevel&) = delete;

  /// Starts round 1: sends gradients to the servers on this node.
  void collect() {
    fold_in_strays();
    const Stopwatch watch(exchange_.wire.stats.exchange_seconds);
    const std::size_t locals = locals_.size();
    const auto local =
        static_cast<std::size_t>(std::ranges::find(locals_, self_) - locals_.begin());
    for (std::size_t step = 1; step < locals; ++step) {
      send_gradient(locals_[(local + step) % locals]);
      receive_gradients((local + locals - step) % locals);
    }
  }

  /// Ends round 1 and starts round 2: adds this node's gradients and sends them on between nodes.
  void sum() {
    const Stopwatch watch(exchange_.wire.stats.add_seconds);
    expect_all_whole();
    save_residuals();
    open_headers();
    for (std::size_t rail = 0; rail < shards_.size(); ++rail) {
      Shard& shard = shards_[rail];
      for (std::size_t i = 0; i < shard.places.size(); ++i) {  // a discarded step gave it back
        shard.states[i].turn = whole(shard.places[i]).state->turn;
      }
      if (!serves(rail)) continue;
      add_gradients(rail);
      const std::uint16_t number = number_of(rail);
      Exchange& inner = *std::construct_at(
          &inner_[rail], Exchange{.wire = {.world = *rails_.transport(rail),
                                           .deadline = exchange_.wire.deadline,
                                           .stats = exchange_.wire.stats,
                                           .names = rails_.ranks(rail)},
                                  .compressor = exchange_.compressor,
                                  .exec = exchange_.exec,
                                  .scaling = {.decay = exchange_.scaling.decay, .factor = 1},
                                  .course = {.ring = exchange_.course.ring,
                                             .status = exchange_.course.status,
                                             .one_outcome = true},
                                  .part = shard.part,
                                  .header = exchange_.header,
                                  .random = exchange_.random});
      inner.header.part = number;
      inner.header.count = shard.part.count;
      inner.header.k = shard.part.k;
      inner.random.stage = number * (shard.part.partition.owners() + 1);
      shard.rounds = inner_schedule_.run(inner);
    }
  }

  /// Round 2: resumes the rails up to their next stop, which is the same for all; one rail after
  /// the other if the host waits for a device within them. False at the end.
  bool go_on() {
    const bool one_by_one = goes_alone(inner_schedule_, exchange_, rails_.topology().nodes());
    bool stopped = false;
    for (std::size_t rail = rail_; rail < shards_.size(); ++rail) {
      const bool has_stop = serves(rail) && shards_[rail].rounds.resume();
      if (has_stop) ticket_ = shards_[rail].rounds.ticket();
      stopped |= has_stop;
      if (!one_by_one) continue;
      if (has_stop) break;
      rail_ = rail + 1;
    }
    return stopped;
  }
  /// Ticket of the last rail resumed, which covers all: rails share the world's tickets.
  Ticket ticket() const { return ticket_; }

  /// Whether a round before the third tells the node how long the rails' outcomes are: how many
  /// elements sums have, and the bytes of messages that have travelled.
  bool needs_counts() const { return comm::needs_counts(exchange_, header_of_outcome(0, 0).kind); }
  Counts count() {
    const bool is_sum = header_of_outcome(0, 0).kind == Header::Kind::partial;
    Counts counts(exchange_, is_sum ? "elements" : "bytes", shards_.size() * outcomes());
    for (std::size_t rail = 0; rail < shards_.size(); ++rail) {
      for (std::uint32_t sender = 0; sender < outcomes(); ++sender) {
        const std::uint64_t most =
            is_sum ? header_of_outcome(rail, sender).k : shape_of_outcome(rail, sender).bytes();
        if (!serves(rail)) {
          counts.receive(rails_.server(rail), most);
          continue;
        }
        const MessageView& outcome = messages_of(inner_[rail])[sender];
        const std::uint64_t* const size = size_of_union(rail);
        const auto word = size != nullptr
                              ? std::as_bytes(std::span(size, 1))
                              : counts.word_of(is_sum ? outcome.header.k : outcome.bytes.size());
        counts.take_own(word, most);
        for (const int local : locals_) {
          if (local != self_) counts.send(word, local);
        }
      }
    }
    return counts;
  }
  /// Takes the counts that have arrived, and settles the unions of this rank's rails.
  void take_counts(const Counts& counts) {
    told_ = counts.theirs();
    const Stopwatch watch(exchange_.wire.stats.add_seconds);
    for (std::size_t rail = 0; rail < shards_.size(); ++rail) {
      if (!serves(rail) || size_of_union(rail) == nullptr) continue;
      Terms& terms = std::get<Terms>(inner_[rail].result.outcome);
      const auto sum = workspace_.take<MessageView>(1);
      sum[0] = exchange_.compressor.settle(exchange_.exec, terms.united, told(rail, 0),
                                           exchange_.course.status);
      terms.messages = sum;
    }
  }

  /// Starts round 3: sends the rails' outcomes to this node.
  void share() {
    Stats& stats = exchange_.wire.stats;
    const Stopwatch watch(&stats.exchange_seconds, &stats.encode_seconds);
    for (std::size_t rail = 0; rail < shards_.size(); ++rail) {
      count_turn(rail);
      const auto views = workspace_.take<MessageView>(outcomes());
      messages_[rail] = views;
      received_[rail] = workspace_.take<std::uint64_t>(outcomes());
      if (!serves(rail)) {
        const int server = rails_.server(rail);
        for (std::uint32_t sender = 0; sender < views.size(); ++sender) {
          const auto buffer =
              take_outcome_buffer(rail, sender).first(bytes_of_outcome(rail, sender));
          views[sender] = {};
          views[sender].bytes = buffer;
          exchange_.wire.world.recv(buffer, server, &received_[rail][sender]);
        }
        continue;
      }
      const Exchange& inner = inner_[rail];
      shards_[rail].owned = inner.owned;
      exchange_.result.poisoned |= inner.result.poisoned;
      std::ranges::copy(messages_of(inner), views.begin());
      if (locals_.size() > 1) pack(rail);
      for (const MessageView& view : views) send_to_node(view.bytes);
    }
  }

  /// Ends round 3.
  void finish() {
    const Stopwatch watch(exchange_.wire.stats.add_seconds);
    open_outcomes();
    if (exchange_.result.poisoned) return;
    const std::span<float> sum = scratch_.first(exchange_.part.count);
    exchange_.result.outcome = WholeSum{.sum = sum};
    for (std::size_t rail = 0; rail < shards_.size(); ++rail) {
      compress::Part& part = shards_[rail].part;
      for (std::size_t i = 0; i < part.pieces.size(); ++i) {
        const Shard::Place& place = shards_[rail].places[i];
        part.pieces[i].elements =
            sum.subspan(whole(place).base + place.begin, part.pieces[i].elements.size());
      }
      const auto written =
          exchange_.compressor.write_outcome(exchange_.exec, part,
                                             {.messages = messages_[rail],
                                              .partitioned = inner_schedule_.partitioned,
                                              .factor = exchange_.scaling.factor,
                                              .status = exchange_.course.status});
      exchange_.result.poisoned |= !written.finite;
    }
    exchange_.scaling.factor = 1;
  }

 private:
  /// This rank's input for a shard that it serves, by local rank.
  struct Gathered {
    std::span<float> sum;                     ///< by position of the shard
    std::span<std::span<float>> gradients;    ///< likewise; its own stays where it was
    std::span<std::span<std::byte>> headers;  ///< sent before the gradients
  };

  /// A message of round 1.
  struct Receipt {
    std::uint64_t expected, bytes;
    int sender;
  };

  bool serves(std::size_t rail) const { return rails_.transport(rail) != nullptr; }
  const Piece& whole(const Shard::Place& place) const { return exchange_.part.pieces[place.piece]; }
  std::uint16_t number_of(std::size_t rail) const {
    return exchange_.levels.shards->number(exchange_.header.part, rail);
  }
  /// This rank's gradient at piece i of a shard.
  std::span<const float> outgoing(const Shard& shard, std::size_t i) const {
    const Shard::Place& place = shard.places[i];
    return outgoing_[place.piece].subspan(place.begin, shard.part.pieces[i].elements.size());
  }

  /// All ranks count the turns of all pieces alike, whoever serves them; also where the call
  /// becomes NaN, which a rank on a device does not know yet.
  void count_turn(std::size_t rail) const {
    const Shard& shard = shards_[rail];
    const std::uint32_t taken = !serves(rail) && inner_schedule_.takes_turns ? 1 : 0;
    for (std::size_t i = 0; i < shard.places.size(); ++i) {
      whole(shard.places[i]).state->turn = shard.states[i].turn + taken;
    }
  }

  /// Header of the message that announces a gradient.
  Header header_of_gradient(std::size_t rail) const {
    Header header = exchange_.header;
    header.kind = Header::Kind::contribution;
    header.count = header.k = 0;
    header.part = number_of(rail);
    return header;
  }
  /// Messages that a rail ends with: one per node, or a single one.
  std::size_t outcomes() const {
    const bool one = inner_schedule_.outcome == Header::Kind::partial;
    return one ? 1 : static_cast<std::size_t>(rails_.topology().nodes());
  }
  /// Header of node `sender`'s message among them, or of the single one; k is the most it may
  /// carry.
  Header header_of_outcome(std::size_t rail, std::uint32_t sender) const {
    const compress::Part& part = shards_[rail].part;
    const bool shared = inner_schedule_.partitioned;
    Header header = shared ? part.of_owner(exchange_.header, sender) : exchange_.header;
    header.kind = shared ? Header::Kind::sum : Header::Kind::gradient;
    if (!shared) header.count = part.count;
    header.k = shared ? part.owner_k[sender] : part.k;
    header.part = number_of(rail);
    const bool one = inner_schedule_.outcome == Header::Kind::partial;
    if (!one) return header;
    return compress::partial_header(header, part, rails_.topology().nodes());
  }
  /// The longest shape of that message.
  const compress::Shape& shape_of_outcome(std::size_t rail, std::uint32_t sender) const {
    const compress::Part& part = shards_[rail].part;
    if (inner_schedule_.partitioned) return part.shapes.sums[sender];
    const int nodes = rails_.topology().nodes();
    const bool is_sum = inner_schedule_.outcome == Header::Kind::partial && nodes > 1;
    return is_sum ? part.partial_of(nodes).longest : part.shapes.gradients.front();
  }
  /// What this rank expects of it.
  Expected expected(std::size_t rail, std::uint32_t sender) const {
    const Header header = header_of_outcome(rail, sender);
    if (!has_open_size(exchange_, header.kind)) return {header, shape_of_outcome(rail, sender)};
    if (told_.empty() || header.kind != Header::Kind::partial) return Expected::at_most(header);
    return expect_told(exchange_, header, told(rail, sender));
  }
  /// The size of that message in bytes; the largest possible size if it is not known.
  std::size_t bytes_of_outcome(std::size_t rail, std::uint32_t sender) const {
    const Expected message = expected(rail, sender);
    if (message.shape) return message.shape->bytes();
    return told_.empty() ? shape_of_outcome(rail, sender).bytes() : told(rail, sender);
  }
  /// How many elements the union has that a rail ended with, which only the device knows yet; or
  /// null.
  const std::uint64_t* size_of_union(std::size_t rail) const {
    const Terms* const terms = std::get_if<Terms>(&inner_[rail].result.outcome);
    return terms != nullptr ? terms->united.size : nullptr;
  }
  /// The count that the server has sent for that message.
  std::uint64_t told(std::size_t rail, std::uint32_t sender) const {
    return told_[rail * outcomes() + sender];
  }
  void send_to_node(std::span<const std::byte> message) {
    for (const int local : locals_) {
      if (local != self_) comm::send(exchange_, message, local);
    }
  }
  /// Encodes as messages what a rail has ended with in another form.
  void pack(std::size_t rail) const {
    const Stopwatch watch(exchange_.wire.stats.encode_seconds);
    for (std::uint32_t sender = 0; sender < messages_[rail].size(); ++sender) {
      MessageView& view = messages_[rail][sender];
      if (!view.bytes.empty()) continue;
      const bool is_union = view.header.kind == Header::Kind::partial;  // of sound messages alone
      if (exchange_.course.status != nullptr && !view.index.empty() && !is_union) {
        compress::bound_index(exchange_.exec, view, *exchange_.course.status);
      }
      exchange_.compressor.pack(exchange_.exec, view, take_outcome_buffer(rail, sender),
                                exchange_.course.status);
    }
  }
  std::span<std::byte> take_outcome_buffer(std::size_t rail, std::uint32_t sender) const {
    return take_buffer(exchange_, shape_of_outcome(rail, sender).bytes());
  }

  /// Opens the headers of the gradients that came, which must be of the same call.
  void open_headers() const {
    const std::size_t most = shards_.size() * locals_.size();
    const auto incoming = workspace_.take<Incoming>(most);
    std::size_t count = 0;
    for (std::size_t rail = 0; rail < shards_.size(); ++rail) {
      for (std::size_t sender = 0; serves(rail) && sender < locals_.size(); ++sender) {
        if (locals_[sender] == self_) continue;
        incoming[count++] = {gathered_[rail].headers[sender],
                             {header_of_gradient(rail), compress::header_alone()},
                             locals_[sender]};
      }
    }
    const auto views = workspace_.take<MessageView>(most).first(count);
    (void)exchange_.compressor.open_all(exchange_.exec, incoming.first(count), views,
                                        exchange_.course.status);
  }

  /// Opens what the servers on this node sent of their shards.
  void open_outcomes() {
    const std::size_t most = shards_.size() * outcomes();
    const auto incoming = workspace_.take<Incoming>(most);
    const auto opened = workspace_.take<MessageView>(most);
    std::size_t count = 0;
    for (std::size_t rail = 0; rail < shards_.size(); ++rail) {
      for (std::uint32_t sender = 0; !serves(rail) && sender < outcomes(); ++sender) {
        incoming[count++] = {messages_[rail][sender].bytes.first(received_[rail][sender]),
                             expected(rail, sender), rails_.server(rail)};
      }
    }
    const std::uint16_t flags = exchange_.compressor.open_all(
        exchange_.exec, incoming.first(count), opened.first(count), exchange_.course.status);
    exchange_.result.poisoned |= (flags & Header::kPoison) != 0;
    auto next = opened.begin();
    for (std::size_t rail = 0; rail < shards_.size(); ++rail) {
      if (serves(rail)) continue;
      for (MessageView& view : messages_[rail]) view = *next++;
    }
  }

  /// Takes one block: first the node's gradients of the shards that this rank serves, then the sum.
  void take_scratch() {
    std::uint64_t floats = 0, messages = 0;
    for (std::size_t rail = 0; rail < shards_.size(); ++rail) {
      if (!serves(rail)) continue;
      floats += locals_.size() * shards_[rail].part.count;
      messages += (locals_.size() - 1) * (1 + shards_[rail].part.pieces.size());
    }
    all_receipts_ = workspace_.take<Receipt>(messages);
    receipts_ = all_receipts_.data();
    scratch_ = take_floats(std::max(floats, exchange_.part.count));
    std::span<float> rest = scratch_;
    for (std::size_t rail = 0; rail < shards_.size(); ++rail) {
      gathered_[rail] = {};
      if (!serves(rail)) continue;
      const std::uint64_t count = shards_[rail].part.count;
      const auto next = [&] {
        const auto buffer = rest.first(count);
        rest = rest.subspan(count);
        return buffer;
      };
      Gathered& gathered = gathered_[rail];
      gathered = {.sum = next(),
                  .gradients = workspace_.take<std::span<float>>(locals_.size()),
                  .headers = workspace_.take<std::span<std::byte>>(locals_.size())};
      for (std::size_t sender = 0; sender < locals_.size(); ++sender) {
        const bool own = locals_[sender] == self_;
        gathered.gradients[sender] = own ? std::span<float>() : next();
        gathered.headers[sender] = own ? std::span<std::byte>() : take_header();
      }
    }
  }
  std::span<float> take_floats(std::uint64_t floats) const {
    const auto buffer = take_buffer(exchange_, floats * sizeof(float));
    return {reinterpret_cast<float*>(buffer.data()), floats};
  }
  std::span<std::byte> take_header() const { return take_buffer(exchange_, sizeof(Header)); }

  /// If the residual may hold something outside of the shards that this rank serves, sends
  /// feedback(gradient, residual) as its gradient. The residual stays until the sum is written.
  /// Sends a copy of the gradient if its memory may not be sent from.
  void fold_in_strays() {
    const Stopwatch watch(exchange_.wire.stats.select_seconds);
    // Taken in any case, so that no later call allocates; touched only if needed.
    const auto buffer = take_floats(exchange_.part.count);
    const Workspace& scratch = kernels::scratch_of(exchange_.exec);
    for (std::size_t i = 0; i < outgoing_.size(); ++i) {
      const Piece& piece = exchange_.part.pieces[i];
      outgoing_[i] = piece.elements.floats();
      const bool is_confined = piece.state->confined_to == exchange_.header.bucket;
      folded_[i] = piece.state->dirty && !is_confined ? 1 : 0;
      if (folded_[i] == 0 && !scratch.is_foreign(piece.elements.bytes().data())) continue;
      const auto folded = buffer.subspan(piece.base, piece.elements.size());
      kernels::copy(exchange_.exec, std::as_writable_bytes(folded), piece.elements.bytes());
      if (folded_[i] != 0) {
        kernels::feedback_add(exchange_.exec, folded, piece.residual(), exchange_.scaling.decay);
      }
      outgoing_[i] = folded;
    }
  }

  void send_gradient(int server) {
    for (std::size_t rail = 0; rail < shards_.size(); ++rail) {
      if (rails_.server(rail) != server) continue;
      const auto header = take_header();
      (void)compress::seal(exchange_.exec, header_of_gradient(rail), compress::header_alone(), {},
                           header, exchange_.compressor.codings(), {}, exchange_.course.status);
      send(exchange_, header, server);
      for (std::size_t i = 0; i < shards_[rail].places.size(); ++i) {
        send(exchange_, std::as_bytes(outgoing(shards_[rail], i)), server);
      }
    }
  }

  void receive_gradients(std::size_t sender) {
    for (std::size_t rail = 0; rail < shards_.size(); ++rail) {
      if (!serves(rail)) continue;
      const Gathered& gathered = gathered_[rail];
      receive_whole(gathered.headers[sender], locals_[sender]);
      for (const Piece& piece : shards_[rail].part.pieces) {
        const auto buffer = gathered.gradients[sender].subspan(piece.base, piece.elements.size());
        receive_whole(std::as_writable_bytes(buffer), locals_[sender]);
      }
    }
  }

  /// Enqueues the receipt of a message that has to fill its buffer.
  void receive_whole(std::span<std::byte> buffer, int sender) {
    Receipt& receipt = *receipts_++;
    receipt = {.expected = buffer.size(), .bytes = 0, .sender = sender};
    exchange_.wire.world.recv(buffer, sender, &receipt.bytes);
  }
  void expect_all_whole() const {
    for (const Receipt& receipt : std::span(all_receipts_.data(), receipts_)) {
      if (receipt.bytes == receipt.expected) continue;
      throw CommError("rank " + std::to_string(receipt.sender) + " sent " +
                      std::to_string(receipt.bytes) + " bytes of its gradient to rank " +
                      std::to_string(self_) + ", where " + std::to_string(receipt.expected) +
                      " are due");
    }
  }

  /// Adds the node's gradients of a shard, whose pieces then view the sum. This rank's residual is
  /// not in it: the inner schedule adds that.
  void add_gradients(std::size_t rail) {
    Shard& shard = shards_[rail];
    const Gathered& gathered = gathered_[rail];
    const auto terms = workspace_.take<kernels::Term>(locals_.size());
    for (std::size_t i = 0; i < shard.places.size(); ++i) {
      Piece& piece = shard.part.pieces[i];
      const Shard::Place& place = shard.places[i];
      const std::uint64_t size = piece.elements.size();
      for (std::size_t sender = 0; sender < terms.size(); ++sender) {
        terms[sender] = {.value = locals_[sender] == self_
                                      ? whole(place).elements.floats().subspan(place.begin, size)
                                      : gathered.gradients[sender].subspan(piece.base, size)};
      }
      piece.elements = gathered.sum.subspan(piece.base, size);
      // The inner schedule detects what is not finite.
      kernels::ordered_sum(exchange_.exec,
                           {.terms = {terms}, .sums = kernels::alone({piece.elements})});
    }
  }

  /// Saves what the inner schedule will change, to restore it if the call fails.
  void save_residuals() {
    std::size_t pieces = 0;
    for (std::size_t rail = 0; rail < shards_.size(); ++rail) {
      if (serves(rail)) pieces += shards_[rail].places.size();
    }
    const auto saved = workspace_.take<ResidualsChanged::Stretch>(pieces);
    std::size_t at = 0;
    for (std::size_t rail = 0; rail < shards_.size(); ++rail) {
      if (!serves(rail)) continue;
      for (std::size_t i = 0; i < shards_[rail].places.size(); ++i, ++at) {
        const auto residual = shards_[rail].part.pieces[i].residual();
        const auto buffer = take_floats(residual.size());
        saved[at] = {.residual = residual, .before = {}};
        if (!whole(shards_[rail].places[i]).state->dirty) continue;
        kernels::copy(exchange_.exec, std::as_writable_bytes(buffer), std::as_bytes(residual));
        saved[at].before = buffer;
      }
    }
    exchange_.undo = ResidualsChanged{saved};
  }

  Exchange& exchange_;
  Workspace& workspace_;
  const Rails& rails_;
  std::span<Shard> shards_;
  std::span<std::uint8_t> folded_;  // Shards::folded
  const Schedule& inner_schedule_;
  std::span<const int> locals_;
  int self_;
  // By rail.
  std::span<Gathered> gathered_;
  std::span<Exchange> inner_;  // set if this rank serves the rail
  std::span<std::span<MessageView>> messages_;
  std::span<std::span<std::uint64_t>> received_;  // their bytes
  std::span<std::span<const float>> outgoing_;    // by piece
  std::span<const std::uint64_t> told_;  // of outcomes, by rail, then by sender; if they were told
  std::span<float> scratch_;
  std::span<Receipt> all_receipts_;
  Receipt* receipts_ = nullptr;  // the next of them
  std::size_t rail_ = 0;         // rails before it have ended
  Ticket ticket_;
};

/// Hierarchical: only compressed sums of whole nodes leave a node. A part is cut into one shard per
/// rail (comm/schedule/shards.hpp); on each node one rank serves a shard. Rounds:
///   1. Each rank sends its gradient, shard by shard, to the ranks of its node that serve them.
///      These add the node's gradients in rank order, position i as ((0 + g[0][i]) + g[1][i]) + ...
///   2. Each rail reduces its shard by the inner schedule, with nodes as ranks and node sums as
///      gradients. What it does not send stays with the server on each node, so a rank's residual
///      covers the shards that it serves; any residual elsewhere, from a failed call or another
///      schedule, goes into round 1 once.
///   3. Each server sends the inner schedule's final messages to its node unchanged. An outcome
///      that is not a message (doubling's sum; shared's values, whose support came before) becomes
///      one, with uncoded values. Where a gradient decides how long it is, and sizes do not travel
///      with messages, the server first tells its node.
/// So position i sums over nodes in the inner schedule's order, and each node's term over its ranks
/// in rank order. Ends with a WholeSum; the elements keep the gradient.
Rounds run(Exchange& exchange) {
  TwoLevel part(exchange);
  part.collect();
  co_await exchange.wire.world.start(exchange.exec);
  part.sum();
  while (part.go_on()) co_await part.ticket();
  if (part.needs_counts()) {
    Counts counts = part.count();
    co_await exchange_counts(counts);
    part.take_counts(counts);
  }
  part.share();
  co_await exchange.wire.world.start(exchange.exec);
  part.finish();
}

/// Keeps the rests of sums that are to be rounded: the servers of a shard share them out.
void keep_rests(const Exchange& exchange, const Exec& exec) {
  count_clipped(exchange, [&](std::uint32_t* too_large) {
    kernels::together(exec, [&] {
      for (std::size_t rail = 0; rail < exchange.levels.shards->of_rail.size(); ++rail) {
        const Shard& shard = exchange.levels.shards->of_rail[rail];
        const Transport* const servers = exchange.levels.rails->transport(rail);
        kernels::RestKeeper keeper = kernels::RestKeeper::nobody();
        if (servers != nullptr) {
          keeper = keeper_among(*servers, shard.part, *exchange.levels.shards->inner,
                                exchange.scaling.averaged);
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
      compress::keep_left(exec, shard.part, shard.owned);
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
    piece.state->confined_to = exchange.header.bucket;
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
