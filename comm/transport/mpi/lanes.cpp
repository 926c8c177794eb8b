// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/mpi/lanes.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <winnow/error.hpp>

#include "comm/transport/failure.hpp"
#include "comm/transport/mpi/calls.hpp"

namespace winnow::comm {

// A receipt is posted only after a probe has found a piece and its size, never before: Open MPI
// (4.1, shared memory, single copy) writes past the end of a buffer that is too short for its
// message, though it then reports truncation. So a failed wait also has nothing to cancel.
//
// MPI completes a send that leaves at once before the receiver has asked for it, so kWindow would
// bound nothing. Hence every kWindow-th full piece of a lane is synchronous (it completes when the
// receiver has matched it) and waits for the previous synchronous one: at most 2 kWindow - 1 full
// pieces of a lane pile up unmatched.

namespace {
constexpr int kWindow = 16;  // pieces of one lane under way
}  // namespace

MpiLanes::MpiLanes(MPI_Comm communicator, const std::vector<std::uint64_t>& chunks)
    : comm_(communicator), send_lanes_(chunks.begin(), chunks.end()), recv_lanes_(send_lanes_) {
  awaited_.reserve(chunks.size());
  unwritten_.reserve(chunks.size());
}

void MpiLanes::enqueue(const Message& message) {
  messages_.push({{message}});
  requests_wanted_ += most_requests(message);
}

MpiLanes::Lane& MpiLanes::lane_of(const Message& message) {
  return (message.is_send ? send_lanes_ : recv_lanes_)[static_cast<std::size_t>(message.peer)];
}

std::size_t MpiLanes::most_requests(const Message& message) {
  const std::uint64_t pieces = message.bytes / lane_of(message).chunk + 1;
  return static_cast<std::size_t>(std::min<std::uint64_t>(pieces, kWindow));
}

Ticket MpiLanes::start(const Exec& exec) {
  // Reserves the most that the messages can have under way, whatever the timing, so that steps of
  // equal shape allocate once.
  pieces_.reserve(requests_wanted_);
  MpiStart& start = messages_.start();
  const Ticket ticket{messages_.starts().last()};
  start.marked = exec.place == Place::cuda;
  if (start.marked) {
    if (start.mark == nullptr) start.mark = std::make_unique<kernels::StreamMark>();
    start.mark->set(exec);
  }
  post_begun();
  return ticket;
}

// Puts the messages of starts that their stream has reached into their lanes, in order.
void MpiLanes::post_begun() {
  const TicketQueue<MpiStart>& starts = messages_.starts();
  reached_ = std::max(reached_, starts.completed());  // an empty start completes by itself
  for (; reached_ != starts.last(); ++reached_) {
    const MpiStart& start = starts[reached_ + 1];
    try {
      if (start.marked && !start.mark->passed()) return;
    } catch (const CudaError& error) {
      fail_by({error.what()}, error.code());
    }
    for (; linked_ != start.end; ++linked_) {
      const MpiMessage& message = messages_[linked_];
      Lane& lane = lane_of(message);
      if (lane.empty() && !message.is_send) awaited_.push_back(message.peer);
      lane.append(messages_, linked_);
      if (message.is_send) (void)post_sends(lane);
    }
  }
}

// Posts the sends that may go. False if more of a message must be written first.
bool MpiLanes::post_sends(Lane& lane) {
  while (!lane.empty() && lane.under_way < kWindow) {
    const MpiMessage& message = messages_[lane.current];
    const std::uint64_t bytes = std::min(lane.chunk, message.bytes - message.offset);
    if (message.written != nullptr && *message.written < message.offset + bytes) {
      if (!std::exchange(lane.unwritten, true)) unwritten_.push_back(message.peer);
      return false;
    }
    const bool synchronous = bytes == lane.chunk && lane.full_pieces + 1 == kWindow;
    if (synchronous && lane.unconfirmed) return true;
    post_piece(lane, bytes, synchronous);
    if (bytes == lane.chunk) lane.full_pieces = synchronous ? 0 : lane.full_pieces + 1;
    lane.unconfirmed |= synchronous;
  }
  return true;
}

// Posts receipts for the pieces that have arrived.
void MpiLanes::post_receipts(Lane& lane, int peer) {
  while (!lane.empty() && lane.under_way < kWindow) {
    int bytes = 0;
    const int code = MpiPieces::probe(comm_, peer, bytes);
    check_mpi(code, "MPI_Iprobe");
    if (bytes < 0) return;
    const MpiMessage& message = messages_[lane.current];
    const std::uint64_t total = message.offset + static_cast<std::uint64_t>(bytes);
    if (total > message.bytes)
      fail_by({"a message of " + std::to_string(total) + " bytes or more from rank " +
                   std::to_string(peer) + " is longer than its buffer of " +
                   std::to_string(message.bytes),
               FailureKind::usage});
    post_piece(lane, static_cast<std::uint64_t>(bytes));
  }
}

// Posts the next piece of the lane's current message.
void MpiLanes::post_piece(Lane& lane, std::uint64_t bytes, bool synchronous) {
  MpiMessage& message = messages_[lane.current];
  const int code =
      pieces_.post(comm_, {.data = message.bytes > 0 ? message.data + message.offset : nullptr,
                           .bytes = static_cast<int>(bytes),
                           .peer = message.peer,
                           .is_send = message.is_send,
                           .synchronous = synchronous,
                           .message = lane.current,
                           .offset = message.offset});
  if (code != MPI_SUCCESS) {
    const std::string send = synchronous ? "MPI_Issend to" : "MPI_Isend to";
    check_mpi(code, (message.is_send ? send : "MPI_Irecv from") + " rank " +
                        std::to_string(message.peer));
  }
  ++message.under_way;
  ++lane.under_way;
  message.offset += bytes;
  if (bytes == lane.chunk) return;
  message.posted = true;
  lane.current = message.next;
}

void MpiLanes::move() {
  post_begun();
  finish_pieces();
  std::erase_if(unwritten_, [this](int peer) {
    Lane& lane = send_lanes_[static_cast<std::size_t>(peer)];
    lane.unwritten = !post_sends(lane);
    return !lane.unwritten;
  });
  for (std::size_t i = 0; i < awaited_.size();) {
    Lane& lane = recv_lanes_[static_cast<std::size_t>(awaited_[i])];
    post_receipts(lane, awaited_[i]);
    if (!lane.empty()) {
      ++i;
    } else {
      awaited_[i] = awaited_.back();
      awaited_.pop_back();
    }
  }
}

void MpiLanes::finish_pieces() {
  std::span<const MpiPieces::Finished> finished;
  const int code = pieces_.test(finished);
  check_mpi(code, "MPI_Testsome");

  const MpiPieces::Finished* failed = nullptr;
  for (const MpiPieces::Finished& piece : finished) {
    if (piece.error != MPI_SUCCESS) {
      failed = &piece;
      continue;
    }
    MpiMessage& message = messages_[piece.message];
    Lane& lane = lane_of(message);
    --message.under_way;
    --lane.under_way;
    if (piece.synchronous) lane.unconfirmed = false;
    message.complete = message.posted && message.under_way == 0;
    if (message.arrived != nullptr)
      *message.arrived = pieces_.first_open(piece.message, message.offset);
    if (message.complete && message.message_bytes != nullptr)
      *message.message_bytes = message.offset;
  }
  if (failed != nullptr)
    check_mpi(failed->error,
              "transfer with rank " + std::to_string(messages_[failed->message].peer));
  for (const MpiPieces::Finished& piece : finished) {
    const MpiMessage& message = messages_[piece.message];
    if (message.is_send) (void)post_sends(lane_of(message));
  }
}

bool MpiLanes::retire(Ticket ticket) {
  return messages_.retire(
      ticket, [this](const MpiMessage& message) { requests_wanted_ -= most_requests(message); });
}

}  // namespace winnow::comm
