// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>
#include <winnow/mpi.hpp>

#include "comm/transport/message_queue.hpp"
#include "comm/transport/mpi/pieces.hpp"
#include "kernels/exec/place_memory.hpp"

namespace winnow::comm {

struct MpiMessage : QueuedMessage {
  std::uint64_t offset = 0;  ///< bytes posted
  int under_way = 0;         ///< pieces posted and not done
  bool posted = false;       ///< all pieces are
};

struct MpiStart : MessageStart {
  bool marked = false;
  std::unique_ptr<kernels::StreamMark> mark;  ///< stays with the slot
};

/// The messages of an MPI transport, cut into pieces.
///
/// A message of s bytes travels as floor(s / chunk) + 1 pieces: full ones, then one shorter than
/// chunk, which marks the end. MPI keeps the order of pieces with one sender and tag. Messages
/// between two ranks form a lane in each direction; `current` is its first message with pieces to
/// post.
///
/// Throws CommError, after which only what is noexcept may be called.
class MpiLanes {
 public:
  /// `chunks`: bytes of a full piece, by peer; equal at both ends.
  MpiLanes(MPI_Comm communicator, const std::vector<std::uint64_t>& chunks);

  void enqueue(const Message& message);
  /// Starts what was enqueued, once the stream of a device's exec has reached this point.
  Ticket start(const Exec& exec);
  /// Notes what is done, and posts what has arrived or may follow.
  void move();
  /// Whether all messages of starts up to `ticket` are complete; it drops those that are.
  bool retire(Ticket ticket);
  const MessageQueue<MpiMessage, MpiStart>& messages() const { return messages_; }

  /// Whether receipts (or any pieces, if `sends_too`) are still under way.
  bool any_open(bool sends_too) noexcept { return pieces_.any_open(sends_too); }
  /// Leaves what is under way to MPI for good.
  void let_go() noexcept { pieces_.let_go(); }

 private:
  struct Lane : MessageLane {
    explicit Lane(std::uint64_t chunk_bytes) : chunk(chunk_bytes) {}

    std::uint64_t chunk;
    int under_way = 0;
    int full_pieces = 0;       // sent since the last synchronous piece
    bool unconfirmed = false;  // a synchronous piece is under way
    bool unwritten = false;    // is in unwritten_
  };

  Lane& lane_of(const Message& message);
  std::size_t most_requests(const Message& message);
  void post_begun();
  bool post_sends(Lane& lane);
  void post_receipts(Lane& lane, int peer);
  void post_piece(Lane& lane, std::uint64_t bytes, bool synchronous = false);
  void finish_pieces();

  MPI_Comm comm_;
  MessageQueue<MpiMessage, MpiStart> messages_;
  std::uint64_t reached_ = 0;                  // the last ticket that its stream has reached
  std::uint64_t linked_ = 0;                   // number of the first message in no lane
  std::vector<Lane> send_lanes_, recv_lanes_;  // by peer
  std::vector<int> awaited_;                   // peers whose recv_lanes_ have a current message
  std::vector<int> unwritten_;  // peers whose send_lanes_ wait for more of a message to be written
  MpiPieces pieces_;            // each belongs to a message of messages_, by number
  std::size_t requests_wanted_ = 0;  // the most that messages_ can have under way
};

}  // namespace winnow::comm
