// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp/failure_notifier.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <utility>
#include <winnow/error.hpp>

#include "comm/transport/poll.hpp"

namespace winnow::comm {
namespace {

constexpr std::chrono::milliseconds kPatience{500};

}  // namespace

FailureNotifier::FailureNotifier(TcpPorts& ports, const Greeting& greeting,
                                 std::span<const TcpAddress> peers, std::span<TcpLink> links,
                                 Acceptor& acceptor)
    : ports_(ports),
      greeting_(greeting),
      peers_(peers),
      links_(links),
      acceptor_(acceptor),
      notified_(peers.size()),
      text_(greeting.text()) {}

void FailureNotifier::send(std::string_view note) {
  const std::string_view abort = note.substr(0, Greeting::kMostText);
  for (Incoming& incoming : acceptor_.connections())  // that the peer may have for a link already
    if (incoming.greeted && incoming.purpose == Greeting::Purpose::control)
      (void)incoming.channel.send(NoteKind::abort, abort);
  acceptor_.connections().clear();
  for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
    NoteChannel& control = links_[peer].control;
    const auto number = static_cast<int>(peer);
    notified_[peer] =
        control.is_open() || number == greeting_.rank || peers_[peer].nonce == ports_.address.nonce;
    if (control.is_open()) (void)control.send(NoteKind::abort, abort);
    if (notified_[peer]) continue;
    for (const Endpoint& endpoint : reachable(peers_[peer], ports_.address.machine))
      ways_.push_back({number, endpoint});
  }
  text_ += note.substr(0, Greeting::kMostText - text_.size());
  sleep_until([this] { return advance(); }, Deadline::after(kPatience));
}

/// Whether all are notified.
bool FailureNotifier::advance() {
  try {
    acceptor_.accept_all();
  } catch (const CommError&) {
    acceptor_.close();
  }
  std::erase_if(acceptor_.connections(), [this](Incoming& one) { return answer(one); });
  std::erase_if(attempts_, [this](Attempt& attempt) { return refuse(attempt); });
  std::erase_if(ways_,
                [this](const Way& way) { return notified_[static_cast<std::size_t>(way.peer)]; });
  begin_attempts();
  return std::ranges::all_of(notified_, std::identity());
}

/// Whether the connection is over.
bool FailureNotifier::answer(Incoming& incoming) {
  const NoteReader::Outcome outcome = incoming.channel.read();
  if (outcome == NoteReader::Outcome::pending) return false;
  if (outcome == NoteReader::Outcome::ended) return true;
  if (const auto greeting = Greeting::read(incoming.channel.text())) {
    (void)incoming.channel.send(NoteKind::refusal, text_);
    if (greeting->rank >= 0 && greeting->rank < greeting_.size)
      notified_[static_cast<std::size_t>(greeting->rank)] = true;
  }
  return true;
}

/// Whether the attempt is over.
bool FailureNotifier::refuse(Attempt& attempt) {
  if (is_connecting(attempt.channel.socket(), attempt.way.endpoint)) return false;
  if (errno != 0) return true;
  attempt.channel.refuse(text_);
  notified_[static_cast<std::size_t>(attempt.way.peer)] = true;
  return true;
}

void FailureNotifier::begin_attempts() {
  for (; !ways_.empty(); ways_.pop_front()) {
    const Way& way = ways_.front();
    Socket socket = connect_to(way.endpoint);
    if (!socket.is_open() && has_too_many_files(errno)) {
      acceptor_.close();
      return;  // until one of those that are open is over
    }
    if (!socket.is_open()) continue;
    const TcpAddress& address = peers_[static_cast<std::size_t>(way.peer)];
    attempts_.push_back({NoteChannel(std::move(socket), NoteChannel::End::connected,
                                     ports_.credentials_at(address), Greeting::kMostText),
                         way});
  }
}

}  // namespace winnow::comm
