// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp/notices.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

namespace winnow::comm {
namespace {

constexpr std::size_t kMostNotice = 1024;  // fits any socket's buffer

}  // namespace

TcpNotices::TcpNotices(std::vector<NoteChannel> controls) {
  for (NoteChannel& control : controls) peers_.push_back({.control = std::move(control)});
}

void TcpNotices::send(NoteKind kind, std::string_view text) noexcept {
  const std::lock_guard lock(mutex_);
  if (std::exchange(sent_, true)) return;
  for (Peer& peer : peers_)
    if (peer.control.is_open()) (void)peer.control.send(kind, text.substr(0, kMostNotice));
}

void TcpNotices::ask() noexcept {
  const std::lock_guard lock(mutex_);
  for (Peer& peer : peers_) {
    peer.waits_for.reset();
    if (peer.control.is_open()) (void)peer.control.send(NoteKind::question, {});
  }
}

void TcpNotices::answer(int waits_for) noexcept {
  const std::lock_guard lock(mutex_);
  for (Peer& peer : peers_) {
    if (!std::exchange(peer.asks, false)) continue;
    const std::int32_t number = waits_for;
    (void)peer.control.send(NoteKind::answer,
                            {reinterpret_cast<const char*>(&number), sizeof number});
  }
}

bool TcpNotices::all_answered() const {
  return std::ranges::all_of(peers_, [](const Peer& peer) {
    return !peer.control.is_open() || peer.ended || peer.left || peer.waits_for;
  });
}

std::string TcpNotices::reason_of_waiting(int peer) const {
  std::string reason;
  std::vector<bool> seen(peers_.size());
  for (;;) {
    const auto rank = static_cast<std::size_t>(peer);
    if (rank >= peers_.size() || !peers_[rank].control.is_open())
      return reason + ": each of them waits for the next, so a message between two of them is lost";
    if (seen[rank])
      return reason + ": these wait for each other, so a message between two of them is lost";
    seen[rank] = true;
    if (peers_[rank].left) return reason + ", which has left";
    const std::optional<int> next = peers_[rank].waits_for;
    if (!next)
      return reason +
             ", which does not answer: it is not in a call, or stopped, or cannot be reached";
    if (*next < 0) return reason + ", which waits for nobody: it has not come to this call";
    peer = *next;
    reason.append(", which waits for rank ").append(std::to_string(peer));
  }
}

const std::optional<Failure>& TcpNotices::receive(int peer) {
  Peer& from = peers_[static_cast<std::size_t>(peer)];
  while (!from.ended) {
    const NoteReader::Outcome outcome = from.control.read();
    if (outcome == NoteReader::Outcome::pending) break;
    if (outcome == NoteReader::Outcome::ended) {
      from.ended = true;
      if (!from.left)
        from.why = Failure{"rank " + std::to_string(peer) + " is gone: " + from.control.problem()};
    } else if (from.control.kind() == NoteKind::abort) {
      from.ended = true;
      const Failure why = failure_in(from.control.text());
      from.why = aborted_by(peer, why.text, why.kind);
    } else {
      take(from);
    }
  }
  return from.why;
}

/// Takes a note that ends nothing.
void TcpNotices::take(Peer& from) {
  const std::string_view text = from.control.text();
  from.left |= from.control.kind() == NoteKind::leave;
  from.asks |= from.control.kind() == NoteKind::question;
  std::int32_t number = 0;
  if (from.control.kind() != NoteKind::answer || text.size() != sizeof number) return;
  std::memcpy(&number, text.data(), sizeof number);
  from.waits_for = number;
}

}  // namespace winnow::comm
