// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "comm/transport/message_queue.hpp"
#include "comm/transport/shm/shared_ring.hpp"
#include "comm/transport/socket.hpp"
#include "comm/transport/tcp/connection.hpp"
#include "comm/transport/tcp/frames.hpp"
#include "comm/transport/tcp/mesh.hpp"

namespace winnow::comm {

struct TcpMessage : QueuedMessage {
  FrameHeader header;  ///< of a send
};
using TcpMessages = MessageQueue<TcpMessage>;

/// The messages that this rank sends to another and receives from it, over a socket or over two
/// rings.
///
/// Messages form a lane in each direction, linked in order; `current` is its first
/// message that is not complete. A send is complete when the kernel has taken its last byte, a
/// receipt when its last byte lies in the caller's buffer. Nothing is read from a peer for which no
/// receipt is started: TCP then holds its sender up.
class TcpPeer {
 public:
  TcpPeer() = default;
  TcpPeer(const TcpPeer&) = delete;
  TcpPeer& operator=(const TcpPeer&) = delete;

  /// Takes a link but for its control connection.
  void open(TcpLink& link);
  const Socket& data() const { return data_.socket(); }
  bool has_rings() const { return in_.is_open(); }

  /// Appends message `number` to its lane.
  void append(TcpMessages& messages, std::uint64_t number);
  bool is_sending() const { return !sends_.empty(); }
  bool is_receiving() const { return !receipts_.empty(); }

  /// Sends what the kernel takes. False if more of a message must be written first.
  bool send(TcpMessages& messages);
  /// Receives what has come. Returns what is wrong with a message, or an empty text.
  std::string receive(TcpMessages& messages);
  /// Why nothing more can be sent, or come, or empty.
  const std::string& send_problem() const { return send_problem_; }
  const std::string& receive_problem() const { return reader_.problem(); }

  // An event of epoll on the socket.
  void set_readable(bool ending) { reader_.wake(ending); }
  void set_writable() { writable_ = true; }

  // For rings.
  bool can_read() const { return in_.can_read(); }
  /// Sets whether the other end rings when messages can move. False if some can.
  bool set_sleeping(bool sleeps);

 private:
  void gather(const TcpMessages& messages, FrameWriter& writer) const;
  void advance(TcpMessages& messages, std::uint64_t sent);

  Connection data_;
  SharedRing in_, out_;  // if open, instead of data_
  MessageLane sends_, receipts_;
  FrameReader reader_;
  std::uint64_t sent_ = 0;  // bytes of the current send, its header included
  bool writable_ = true;
  bool unwritten_ = false;  // the current send waits for more to be written
  std::string send_problem_;
};

}  // namespace winnow::comm
