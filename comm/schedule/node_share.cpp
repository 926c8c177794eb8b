// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/schedule/node_share.hpp"

#include <algorithm>

#include "compress/partial.hpp"
#include "kernels/exec/stopwatch.hpp"

namespace winnow::comm {

using compress::Expected;
using compress::Header;
using compress::MessageView;
using compress::ReceivedMessage;
using kernels::Stopwatch;

NodeShare::NodeShare(const NodePart& node, std::span<Exchange> inner)
    : node_(node),
      exchange_(node.exchange),
      inner_(inner),
      messages_(workspace().take<std::span<MessageView>>(node.shards.size())),
      received_(workspace().take<std::span<std::uint64_t>>(node.shards.size())) {}

bool NodeShare::needs_counts() const {
  return comm::needs_counts(exchange_, header_of_outcome(0, 0).kind);
}

Counts NodeShare::count() {
  const bool is_sum = header_of_outcome(0, 0).kind == Header::Kind::partial;
  Counts counts(exchange_, is_sum ? "elements" : "bytes", node_.shards.size() * outcomes());
  for (std::size_t rail = 0; rail < node_.shards.size(); ++rail) {
    for (std::uint32_t sender = 0; sender < outcomes(); ++sender) {
      const std::uint64_t most =
          is_sum ? header_of_outcome(rail, sender).k : shape_of_outcome(rail, sender).bytes();
      if (!node_.serves(rail)) {
        counts.receive(node_.rails.server(rail), most);
        continue;
      }
      const auto word = [&] {
        if (const auto* const both = union_of(rail)) return both->size_word();
        const MessageView& outcome = messages_of(inner_[rail])[sender];
        return counts.word_of(is_sum ? outcome.header.k : outcome.bytes.size());
      }();
      counts.take_own(word, most);
      for (const int local : node_.locals) {
        if (local != node_.self) counts.send(word, local);
      }
    }
  }
  return counts;
}

void NodeShare::take_counts(const Counts& counts) {
  counts_ = counts.theirs();
  const Stopwatch watch(exchange_.wire.stats.add_seconds);
  for (std::size_t rail = 0; rail < node_.shards.size(); ++rail) {
    const compress::Union* const both = node_.serves(rail) ? union_of(rail) : nullptr;
    if (both == nullptr) continue;
    const auto sum = workspace().take<MessageView>(1);
    sum[0] = exchange_.compressor.finalize(
        exchange_.exec, *both, counts.theirs()[place_of(rail, 0)], exchange_.course.status);
    inner_[rail].result.outcome = Terms{sum};
  }
}

void NodeShare::share() {
  Stats& stats = exchange_.wire.stats;
  const Stopwatch watch(&stats.exchange_seconds, &stats.encode_seconds);
  for (std::size_t rail = 0; rail < node_.shards.size(); ++rail) {
    count_turn(rail);
    const auto views = workspace().take<MessageView>(outcomes());
    messages_[rail] = views;
    received_[rail] = workspace().take<std::uint64_t>(outcomes());
    if (!node_.serves(rail)) {
      const int server = node_.rails.server(rail);
      for (std::uint32_t sender = 0; sender < views.size(); ++sender) {
        const auto buffer = take_outcome_buffer(rail, sender).first(bytes_of_outcome(rail, sender));
        views[sender] = {};
        views[sender].bytes = buffer;
        exchange_.wire.world.recv(buffer, server, &received_[rail][sender]);
      }
      continue;
    }
    const Exchange& inner = inner_[rail];
    node_.shards[rail].owned = inner.owned;
    exchange_.result.poisoned |= inner.result.poisoned;
    std::ranges::copy(messages_of(inner), views.begin());
    if (node_.locals.size() > 1) pack(rail);
    for (const MessageView& view : views) send_to_node(view.bytes);
  }
}

void NodeShare::finish(std::span<float> sum) {
  const Stopwatch watch(exchange_.wire.stats.add_seconds);
  open_outcomes();
  if (exchange_.result.poisoned) return;
  exchange_.result.outcome = WholeSum{.sum = sum};
  for (std::size_t rail = 0; rail < node_.shards.size(); ++rail) {
    compress::Part& part = node_.shards[rail].part;
    for (std::size_t i = 0; i < part.pieces.size(); ++i) {
      const Shard::Place& place = node_.shards[rail].places[i];
      part.pieces[i].elements =
          sum.subspan(node_.whole(place).base + place.begin, part.pieces[i].elements.size());
    }
    const auto written = exchange_.compressor.write_outcome(exchange_.exec, part,
                                                            {.messages = messages_[rail],
                                                             .partitioned = node_.inner.partitioned,
                                                             .factor = exchange_.scaling.factor,
                                                             .status = exchange_.course.status});
    exchange_.result.poisoned |= !written.finite;
  }
  exchange_.scaling.factor = 1;
}

/// All ranks count the turns of all pieces alike, whoever serves them; also where the call
/// becomes NaN, which a rank on a device does not know yet.
void NodeShare::count_turn(std::size_t rail) const {
  const Shard& shard = node_.shards[rail];
  const std::uint32_t taken = !node_.serves(rail) && node_.inner.takes_turns ? 1 : 0;
  for (std::size_t i = 0; i < shard.places.size(); ++i) {
    node_.whole(shard.places[i]).state->turn = shard.states[i].turn + taken;
  }
}

/// Messages that a rail ends with: one per node, or a single one.
std::size_t NodeShare::outcomes() const {
  const bool one = node_.inner.outcome == Header::Kind::partial;
  return one ? 1 : static_cast<std::size_t>(node_.rails.topology().nodes());
}

/// Header of node `sender`'s message among them, or of the single one; k is the most it may
/// carry.
Header NodeShare::header_of_outcome(std::size_t rail, std::uint32_t sender) const {
  const compress::Part& part = node_.shards[rail].part;
  const bool shared = node_.inner.partitioned;
  Header header = shared ? part.of_owner(exchange_.header, sender) : exchange_.header;
  header.kind = shared ? Header::Kind::sum : Header::Kind::gradient;
  if (!shared) header.count = part.count;
  header.k = shared ? part.owner_k[sender] : part.k;
  header.part = node_.number_of(rail);
  const bool one = node_.inner.outcome == Header::Kind::partial;
  if (!one) return header;
  return compress::partial_header(header, part, node_.rails.topology().nodes());
}

/// The longest shape of that message.
const compress::Shape& NodeShare::shape_of_outcome(std::size_t rail, std::uint32_t sender) const {
  const compress::Part& part = node_.shards[rail].part;
  if (node_.inner.partitioned) return part.shapes.sums[sender];
  const int nodes = node_.rails.topology().nodes();
  const bool is_sum = node_.inner.outcome == Header::Kind::partial && nodes > 1;
  return is_sum ? part.partial_of(nodes).longest : part.shapes.gradients.front();
}

/// This rank's expectation of that message.
Expected NodeShare::expected(std::size_t rail, std::uint32_t sender) const {
  const Header header = header_of_outcome(rail, sender);
  if (!has_open_size(exchange_, header.kind)) return {header, shape_of_outcome(rail, sender)};
  if (!counts_ || header.kind != Header::Kind::partial) return Expected::at_most(header);
  return expect_counted(exchange_, header, (*counts_)[place_of(rail, sender)]);
}

/// The size of that message in bytes; the largest possible size if it is not known.
std::size_t NodeShare::bytes_of_outcome(std::size_t rail, std::uint32_t sender) const {
  const Expected message = expected(rail, sender);
  if (message.shape) return message.shape->bytes();
  return counts_ ? (*counts_)[place_of(rail, sender)] : shape_of_outcome(rail, sender).bytes();
}

/// The union that a rail ended with, or null.
const compress::Union* NodeShare::union_of(std::size_t rail) const {
  return std::get_if<compress::Union>(&inner_[rail].result.outcome);
}

/// The place of that message among counts.
std::size_t NodeShare::place_of(std::size_t rail, std::uint32_t sender) const {
  return rail * outcomes() + sender;
}

void NodeShare::send_to_node(std::span<const std::byte> message) {
  for (const int local : node_.locals) {
    if (local != node_.self) send(exchange_, message, local);
  }
}

/// Encodes as messages what a rail has ended with in another form.
void NodeShare::pack(std::size_t rail) const {
  const Stopwatch watch(exchange_.wire.stats.encode_seconds);
  for (std::uint32_t sender = 0; sender < messages_[rail].size(); ++sender) {
    MessageView& view = messages_[rail][sender];
    if (view.is_packed()) continue;
    const bool is_union = view.header.kind == Header::Kind::partial;  // of sound messages alone
    if (exchange_.course.status != nullptr && !view.term.index.empty() && !is_union) {
      compress::bound_index(exchange_.exec, view, *exchange_.course.status);
    }
    exchange_.compressor.pack(exchange_.exec, view, take_outcome_buffer(rail, sender),
                              exchange_.course.status);
  }
}

std::span<std::byte> NodeShare::take_outcome_buffer(std::size_t rail, std::uint32_t sender) const {
  return take_buffer(exchange_, shape_of_outcome(rail, sender).bytes());
}

/// Decodes what the servers on this node sent of their shards.
void NodeShare::open_outcomes() {
  const std::size_t most = node_.shards.size() * outcomes();
  const auto incoming = workspace().take<ReceivedMessage>(most);
  const auto decoded = workspace().take<MessageView>(most);
  std::size_t count = 0;
  for (std::size_t rail = 0; rail < node_.shards.size(); ++rail) {
    for (std::uint32_t sender = 0; !node_.serves(rail) && sender < outcomes(); ++sender) {
      incoming[count++] = {messages_[rail][sender].bytes.first(received_[rail][sender]),
                           expected(rail, sender), node_.rails.server(rail)};
    }
  }
  exchange_.result.poisoned |= decode(exchange_, incoming.first(count), decoded.first(count));
  auto next = decoded.begin();
  for (std::size_t rail = 0; rail < node_.shards.size(); ++rail) {
    if (node_.serves(rail)) continue;
    for (MessageView& view : messages_[rail]) view = *next++;
  }
}

}  // namespace winnow::comm
