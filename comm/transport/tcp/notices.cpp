// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp/notices.hpp"

#include <utility>

namespace winnow::comm {
namespace {

constexpr std::size_t kMostNotice = 1024;  // fits any socket's buffer

}  // namespace

TcpNotices::TcpNotices(std::vector<Socket> controls) {
  for (Socket& control : controls)
    peers_.push_back({.control = std::move(control), .reader = NoteReader(kMostNotice)});
}

void TcpNotices::tell(NoteKind kind, std::string_view text) noexcept {
  const std::lock_guard lock(mutex_);
  if (std::exchange(told_, true)) return;
  for (const Peer& peer : peers_)
    if (peer.control.is_open()) (void)send_note(peer.control, kind, text.substr(0, kMostNotice));
}

const std::string& TcpNotices::listen(int peer) {
  Peer& from = peers_[static_cast<std::size_t>(peer)];
  const std::string who = from.ended ? "" : "rank " + std::to_string(peer);
  while (!from.ended) {
    const NoteReader::Outcome outcome = from.reader.read(from.control);
    if (outcome == NoteReader::Outcome::pending) break;
    if (outcome == NoteReader::Outcome::ended) {
      from.ended = true;
      if (!from.left) from.why = who + " is gone: " + from.reader.problem();
    } else if (from.reader.kind() == NoteKind::abort) {
      from.ended = true;
      from.why = who + " aborted: " + std::string(from.reader.text());
    } else {
      from.left |= from.reader.kind() == NoteKind::leave;
    }
  }
  return from.why;
}

}  // namespace winnow::comm
