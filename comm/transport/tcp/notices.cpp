// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp/notices.hpp"

#include <utility>

#include "comm/transport/printable.hpp"

namespace winnow::comm {
namespace {

constexpr std::size_t kMostNotice = 1024;  // fits any socket's buffer

}  // namespace

TcpNotices::TcpNotices(std::vector<NoteChannel> controls) {
  for (NoteChannel& control : controls) peers_.push_back({.control = std::move(control)});
}

void TcpNotices::tell(NoteKind kind, std::string_view text) noexcept {
  const std::lock_guard lock(mutex_);
  if (std::exchange(told_, true)) return;
  for (Peer& peer : peers_)
    if (peer.control.is_open()) (void)peer.control.send(kind, text.substr(0, kMostNotice));
}

const std::string& TcpNotices::listen(int peer) {
  Peer& from = peers_[static_cast<std::size_t>(peer)];
  const std::string who = from.ended ? "" : "rank " + std::to_string(peer);
  while (!from.ended) {
    const NoteReader::Outcome outcome = from.control.read();
    if (outcome == NoteReader::Outcome::pending) break;
    if (outcome == NoteReader::Outcome::ended) {
      from.ended = true;
      if (!from.left) from.why = who + " is gone: " + from.control.problem();
    } else if (from.control.kind() == NoteKind::abort) {
      from.ended = true;
      from.why = who + " aborted: " + printable(from.control.text());
    } else {
      from.left |= from.control.kind() == NoteKind::leave;
    }
  }
  return from.why;
}

}  // namespace winnow::comm
