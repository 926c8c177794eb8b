// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/schedule/node_sum.hpp"

#include <algorithm>
#include <string>
#include <winnow/error.hpp>

#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/stopwatch.hpp"
#include "kernels/exec/workspace_internal.hpp"
#include "kernels/feedback.hpp"
#include "kernels/memory_ops.hpp"
#include "kernels/ordered_sum.hpp"

namespace winnow::comm {

using compress::Header;
using compress::MessageView;
using compress::Piece;
using compress::ReceivedMessage;
using kernels::Stopwatch;

/// Takes one block of memory: first for the node's gradients of the shards that this rank serves.
NodeSum::NodeSum(const NodePart& node)
    : node_(node),
      exchange_(node.exchange),
      gathered_(workspace().take<Gathered>(node.shards.size())),
      outgoing_(workspace().take<std::span<const float>>(node.exchange.part.pieces.size())) {
  std::uint64_t floats = 0, messages = 0;
  for (std::size_t rail = 0; rail < node_.shards.size(); ++rail) {
    if (!node_.serves(rail)) continue;
    floats += node_.locals.size() * node_.shards[rail].part.count;
    messages += (node_.locals.size() - 1) * (1 + node_.shards[rail].part.pieces.size());
  }
  all_receipts_ = workspace().take<Receipt>(messages);
  receipts_ = all_receipts_.data();
  memory_ = take_floats(std::max(floats, exchange_.part.count));
  std::span<float> rest = memory_;
  for (std::size_t rail = 0; rail < node_.shards.size(); ++rail) {
    gathered_[rail] = {};
    if (!node_.serves(rail)) continue;
    const std::uint64_t count = node_.shards[rail].part.count;
    const auto next = [&] {
      const auto buffer = rest.first(count);
      rest = rest.subspan(count);
      return buffer;
    };
    Gathered& gathered = gathered_[rail];
    gathered = {.sum = next(),
                .gradients = workspace().take<std::span<float>>(node_.locals.size()),
                .headers = workspace().take<std::span<std::byte>>(node_.locals.size())};
    for (std::size_t sender = 0; sender < node_.locals.size(); ++sender) {
      const bool own = node_.locals[sender] == node_.self;
      gathered.gradients[sender] = own ? std::span<float>() : next();
      gathered.headers[sender] = own ? std::span<std::byte>() : take_header();
    }
  }
}

std::span<float> NodeSum::take_floats(std::uint64_t floats) const {
  const auto buffer = take_buffer(exchange_, floats * sizeof(float));
  return {reinterpret_cast<float*>(buffer.data()), floats};
}

std::span<std::byte> NodeSum::take_header() const {
  return take_buffer(exchange_, sizeof(Header));
}

/// This rank's gradient at piece i of a shard.
std::span<const float> NodeSum::outgoing(const Shard& shard, std::size_t i) const {
  const Shard::Place& place = shard.places[i];
  return outgoing_[place.piece].subspan(place.begin, shard.part.pieces[i].elements.size());
}

void NodeSum::collect() {
  fold_in_off_shard_residual();
  const Stopwatch watch(exchange_.wire.stats.exchange_seconds);
  const std::size_t locals = node_.locals.size();
  const auto local =
      static_cast<std::size_t>(std::ranges::find(node_.locals, node_.self) - node_.locals.begin());
  for (std::size_t step = 1; step < locals; ++step) {
    send_gradient(node_.locals[(local + step) % locals]);
    receive_gradients((local + locals - step) % locals);
  }
}

void NodeSum::sum() {
  expect_all_whole();
  save_residuals();
  open_headers();
  for (std::size_t rail = 0; rail < node_.shards.size(); ++rail) {
    if (node_.serves(rail)) add_gradients(rail);
  }
}

/// Header of the message that announces a gradient.
Header NodeSum::header_of_gradient(std::size_t rail) const {
  Header header = exchange_.header;
  header.kind = Header::Kind::contribution;
  header.count = header.k = 0;
  header.part = node_.number_of(rail);
  return header;
}

/// If the residual may hold something outside of the shards that this rank serves, sends
/// feedback(gradient, residual) as its gradient. The residual stays until the sum is written.
/// Sends a copy of the gradient if its memory may not be sent from.
void NodeSum::fold_in_off_shard_residual() {
  const std::span<std::uint8_t> is_folded = exchange_.levels.shards->folded;
  const Stopwatch watch(exchange_.wire.stats.select_seconds);
  // Taken in any case, so that no later call allocates; touched only if needed.
  const auto buffer = take_floats(exchange_.part.count);
  const Workspace& scratch = kernels::scratch_of(exchange_.exec);
  for (std::size_t i = 0; i < outgoing_.size(); ++i) {
    const Piece& piece = exchange_.part.pieces[i];
    outgoing_[i] = piece.elements.floats();
    const bool is_confined = piece.state->owned_by_plan == exchange_.header.bucket;
    is_folded[i] = piece.state->dirty && !is_confined ? 1 : 0;
    if (is_folded[i] == 0 &&
        !Workspace::Internal::is_foreign(scratch, piece.elements.bytes().data()))
      continue;
    const auto folded = buffer.subspan(piece.base, piece.elements.size());
    kernels::copy(exchange_.exec, std::as_writable_bytes(folded), piece.elements.bytes());
    if (is_folded[i] != 0) {
      kernels::feedback_add(exchange_.exec, folded, piece.residual(), exchange_.scaling.decay);
    }
    outgoing_[i] = folded;
  }
}

void NodeSum::send_gradient(int server) {
  for (std::size_t rail = 0; rail < node_.shards.size(); ++rail) {
    if (node_.rails.server(rail) != server) continue;
    const auto header = take_header();
    (void)compress::finish_message(exchange_.exec, header_of_gradient(rail),
                                   compress::header_alone(), {}, header,
                                   exchange_.compressor.codings(), {}, exchange_.course.status);
    send(exchange_, header, server);
    for (std::size_t i = 0; i < node_.shards[rail].places.size(); ++i) {
      send(exchange_, std::as_bytes(outgoing(node_.shards[rail], i)), server);
    }
  }
}

void NodeSum::receive_gradients(std::size_t sender) {
  for (std::size_t rail = 0; rail < node_.shards.size(); ++rail) {
    if (!node_.serves(rail)) continue;
    const Gathered& gathered = gathered_[rail];
    receive_whole(gathered.headers[sender], node_.locals[sender]);
    for (const Piece& piece : node_.shards[rail].part.pieces) {
      const auto buffer = gathered.gradients[sender].subspan(piece.base, piece.elements.size());
      receive_whole(std::as_writable_bytes(buffer), node_.locals[sender]);
    }
  }
}

/// Enqueues the receipt of a message that has to fill its buffer.
void NodeSum::receive_whole(std::span<std::byte> buffer, int sender) {
  Receipt& receipt = *receipts_++;
  receipt = {.expected = buffer.size(), .bytes = 0, .sender = sender};
  exchange_.wire.world.recv(buffer, sender, &receipt.bytes);
}

void NodeSum::expect_all_whole() const {
  for (const Receipt& receipt : std::span(all_receipts_.data(), receipts_)) {
    if (receipt.bytes == receipt.expected) continue;
    throw CommError("rank " + std::to_string(receipt.sender) + " sent " +
                    std::to_string(receipt.bytes) + " bytes of its gradient to rank " +
                    std::to_string(node_.self) + ", where " + std::to_string(receipt.expected) +
                    " are due");
  }
}

/// Decodes the headers of the gradients that came, which must be of the same call.
void NodeSum::open_headers() const {
  const std::size_t most = node_.shards.size() * node_.locals.size();
  const auto incoming = workspace().take<ReceivedMessage>(most);
  std::size_t count = 0;
  for (std::size_t rail = 0; rail < node_.shards.size(); ++rail) {
    for (std::size_t sender = 0; node_.serves(rail) && sender < node_.locals.size(); ++sender) {
      if (node_.locals[sender] == node_.self) continue;
      incoming[count++] = {gathered_[rail].headers[sender],
                           {header_of_gradient(rail), compress::header_alone()},
                           node_.locals[sender]};
    }
  }
  const auto views = workspace().take<MessageView>(most).first(count);
  (void)decode(exchange_, incoming.first(count), views);
}

/// Adds the node's gradients of a shard, whose pieces then view the sum. This rank's residual is
/// not in it: the inner schedule adds that.
void NodeSum::add_gradients(std::size_t rail) {
  Shard& shard = node_.shards[rail];
  const Gathered& gathered = gathered_[rail];
  const auto terms = workspace().take<kernels::Term>(node_.locals.size());
  for (std::size_t i = 0; i < shard.places.size(); ++i) {
    Piece& piece = shard.part.pieces[i];
    const Shard::Place& place = shard.places[i];
    const std::uint64_t size = piece.elements.size();
    for (std::size_t sender = 0; sender < terms.size(); ++sender) {
      terms[sender] = {.value =
                           node_.locals[sender] == node_.self
                               ? node_.whole(place).elements.floats().subspan(place.begin, size)
                               : gathered.gradients[sender].subspan(piece.base, size)};
    }
    piece.elements = gathered.sum.subspan(piece.base, size);
    // The inner schedule detects what is not finite.
    kernels::ordered_sum(exchange_.exec,
                         {.terms = {terms}, .sums = kernels::alone({piece.elements})});
  }
}

/// Saves what the inner schedule will change, to restore it if the call fails.
void NodeSum::save_residuals() {
  std::size_t pieces = 0;
  for (std::size_t rail = 0; rail < node_.shards.size(); ++rail) {
    if (node_.serves(rail)) pieces += node_.shards[rail].places.size();
  }
  const auto saved = workspace().take<ResidualsChanged::Stretch>(pieces);
  std::size_t at = 0;
  for (std::size_t rail = 0; rail < node_.shards.size(); ++rail) {
    if (!node_.serves(rail)) continue;
    for (std::size_t i = 0; i < node_.shards[rail].places.size(); ++i, ++at) {
      const auto residual = node_.shards[rail].part.pieces[i].residual();
      const auto buffer = take_floats(residual.size());
      saved[at] = {.residual = residual, .before = {}};
      if (!node_.whole(node_.shards[rail].places[i]).state->dirty) continue;
      kernels::copy(exchange_.exec, std::as_writable_bytes(buffer), std::as_bytes(residual));
      saved[at].before = buffer;
    }
  }
  exchange_.undo = ResidualsChanged{saved};
}

}  // namespace winnow::comm
