// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/transport/failure.hpp"
#include "comm/transport/tcp/note_channel.hpp"

namespace winnow::comm {

/// The control connections to all peers: each says once why its rank aborted, or that it has left,
/// and ends when the peer's process does.
class TcpNotices {
 public:
  /// `controls`: by rank; this rank's own is closed.
  explicit TcpNotices(std::vector<NoteChannel> controls);

  /// Sends a note to all peers, once: later calls do nothing. Any thread may call it. Never blocks.
  void send(NoteKind kind, std::string_view text) noexcept;
  // At a deadline a rank asks all others for whom they wait, to name who holds them up.
  /// Asks all peers, whose answers until now no longer count.
  void ask() noexcept;
  /// Answers those that have asked that this rank waits for `waits_for`, or -1: for nobody.
  void answer(int waits_for) noexcept;
  /// Whether all peers have answered, aborted, left or gone.
  bool all_answered() const;
  /// The chain of ranks that wait, as answers say: for whom `peer` waits, and so on.
  std::string reason_of_waiting(int peer) const;

  /// Reads what has come from `peer`. Returns why nothing more will: it aborted or is gone. Nothing
  /// while neither is so, and if it has left.
  const std::optional<Failure>& receive(int peer);
  /// Whether `peer` has said that it leaves.
  bool has_left(int peer) const { return peers_[static_cast<std::size_t>(peer)].left; }
  /// Credentials for messages, which only this rank and `peer` have.
  Credentials message_key(int peer) const {
    return peers_[static_cast<std::size_t>(peer)].control.derive("messages");
  }
  const Socket& control(int peer) const {
    return peers_[static_cast<std::size_t>(peer)].control.socket();
  }

 private:
  struct Peer {
    NoteChannel control;
    bool left = false;
    bool ended = false;
    bool asks = false;
    std::optional<int> waits_for{};  // as answered
    std::optional<Failure> why{};
  };
  static void take(Peer& from);

  std::vector<Peer> peers_;
  std::mutex mutex_;
  bool sent_ = false;
};

}  // namespace winnow::comm
