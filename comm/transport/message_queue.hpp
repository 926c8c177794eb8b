// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <winnow/transport.hpp>

#include "comm/transport/failure.hpp"
#include "comm/transport/fifo.hpp"
#include "comm/transport/message.hpp"
#include "comm/transport/ticket_queue.hpp"

namespace winnow::comm {

/// A message of a MessageQueue; a transport may add to it.
struct QueuedMessage : Message {
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  std::uint64_t next = kNone;  ///< the message after it in its lane
  bool complete = false;
};

/// One start; a transport may add to it.
struct MessageStart {
  std::uint64_t end = 0;  ///< number of the message after its last
};

/// A transport's messages, from enqueue to a wait that finds them complete, in the order enqueued,
/// and the starts to which they belong. A message keeps its number. Keeps its memory, as Fifo does.
template <class Entry, class Start = MessageStart>
class MessageQueue {
 public:
  void push(const Entry& message) { messages_.push(message); }
  Entry& operator[](std::uint64_t number) { return messages_[number]; }
  const Entry& operator[](std::uint64_t number) const { return messages_[number]; }
  std::uint64_t begin() const { return messages_.begin(); }
  std::uint64_t end() const { return messages_.end(); }

  /// Begins the start of all messages since the last one. Returns what its slot last held, but for
  /// `end`.
  Start& start() {
    Start& start = starts_.extend();
    start.end = messages_.end();
    return start;
  }
  const TicketQueue<Start>& starts() const { return starts_; }
  /// Drops completed messages of starts up to `ticket`, each after `drop(message)`. Returns whether
  /// all of them were complete.
  template <class Drop>
  bool retire(Ticket ticket, const Drop& drop) {
    return starts_.retire(ticket.number, [&](const Start& start) {
      for (; messages_.begin() != start.end; messages_.pop()) {
        if (!messages_.front().complete) return false;
        drop(messages_.front());
      }
      return true;
    });
  }
  bool retire(Ticket ticket) {
    return retire(ticket, [](const Entry&) {});
  }
  /// Why a wait that found the first message incomplete ends at its deadline; `more` ends the text.
  Failure missed_deadline(std::string_view more = "") const {
    const Entry& first = messages_[begin()];
    std::string when = "while it waited for a message ";
    when.append(first.is_send ? "to" : "from").append(" rank ");
    return comm::missed_deadline(when.append(std::to_string(first.peer)).append(more));
  }

 private:
  Fifo<Entry> messages_;
  TicketQueue<Start> starts_;
};

/// Messages of a queue to one peer, or from it, linked in order.
struct MessageLane {
  std::uint64_t current = QueuedMessage::kNone;  ///< number of the first one, or kNone
  std::uint64_t last = QueuedMessage::kNone;     ///< valid only if there is a first one

  bool empty() const { return current == QueuedMessage::kNone; }
  template <class Queue>
  void append(Queue& messages, std::uint64_t number) {
    (empty() ? current : messages[last].next) = number;
    last = number;
  }
};

}  // namespace winnow::comm
