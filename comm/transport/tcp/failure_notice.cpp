// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp/failure_notice.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <list>
#include <string>
#include <utility>
#include <vector>
#include <winnow/error.hpp>

#include "comm/transport/poll.hpp"

namespace winnow::comm {
namespace {

constexpr std::chrono::milliseconds kPatience{500};

class Notifier {
 public:
  Notifier(const FailureNotice& notice, std::string_view note)
      : notice_(notice), notified_(notice.peers.size()), text_(notice.greeting.text()) {
    text_ += note.substr(0, Greeting::kMostText - text_.size());
    for (AcceptedConnection& incoming : connections())  // that the peer may have for a link already
      if (incoming.greeted && incoming.purpose == Greeting::Purpose::control)
        (void)incoming.channel.send(NoteKind::abort, note.substr(0, Greeting::kMostText));
    connections().clear();
    for (std::size_t peer = 0; peer < notified_.size(); ++peer) {
      const TcpAddress& address = notice.peers[peer];
      NoteChannel& control = notice.links[peer].control;
      notified_[peer] = control.is_open() || static_cast<int>(peer) == notice.greeting.rank ||
                        address.nonce == notice.ports.address.nonce;
      if (control.is_open())
        (void)control.send(NoteKind::abort, note.substr(0, Greeting::kMostText));
      if (notified_[peer]) continue;
      for (const Endpoint& endpoint : reachable(address, notice.ports.address.machine))
        ways_.push_back({peer, endpoint});
    }
  }

  /// Whether all are notified.
  bool advance() {
    try {
      notice_.acceptor.accept_all();
    } catch (const CommError&) {
      give_up_files();
    }
    std::erase_if(connections(), [this](AcceptedConnection& incoming) { return answer(incoming); });
    std::erase_if(attempts_, [this](Attempt& attempt) { return refuse(attempt); });
    std::erase_if(ways_, [this](const Way& way) { return notified_[way.peer]; });
    begin_attempts();
    return std::ranges::all_of(notified_, std::identity());
  }

 private:
  /// An endpoint of a peer that has no connection.
  struct Way {
    std::size_t peer;
    Endpoint endpoint;
  };
  struct Attempt {
    NoteChannel channel;
    Way way;
  };

  std::list<AcceptedConnection>& connections() { return notice_.acceptor.connections(); }
  /// Whether the connection is over.
  bool answer(AcceptedConnection& incoming) {
    const NoteReader::Outcome outcome = incoming.channel.read();
    const auto greeting = outcome == NoteReader::Outcome::complete
                              ? Greeting::read(incoming.channel.text())
                              : std::nullopt;
    if (greeting) {
      (void)incoming.channel.send(NoteKind::refusal, text_);
      if (greeting->rank >= 0 && greeting->rank < notice_.greeting.size)
        notified_[static_cast<std::size_t>(greeting->rank)] = true;
    }
    return outcome != NoteReader::Outcome::pending;
  }
  /// Whether the attempt is over.
  bool refuse(Attempt& attempt) {
    if (is_connecting(attempt.channel.socket(), attempt.way.endpoint)) return false;
    if (errno != 0) return true;
    attempt.channel.refuse(text_);
    notified_[attempt.way.peer] = true;
    return true;
  }
  void give_up_files() {
    notice_.ports.sockets.clear();
    connections().clear();
  }
  void begin_attempts() {
    for (; !ways_.empty(); ways_.pop_front()) {
      const Way& way = ways_.front();
      Socket socket = connect_to(way.endpoint);
      if (!socket.is_open() && has_too_many_files(errno)) {
        give_up_files();
        return;  // until one of those that are open is over
      }
      if (!socket.is_open()) continue;
      const Credentials credentials = notice_.ports.credentials_at(notice_.peers[way.peer]);
      attempts_.push_back({NoteChannel(std::move(socket), NoteChannel::End::connected, credentials,
                                       Greeting::kMostText),
                           way});
    }
  }

  const FailureNotice& notice_;
  std::list<Way> ways_;  // to try
  std::list<Attempt> attempts_;
  std::vector<bool> notified_;  // by rank
  std::string text_;            // of a refusal
};

}  // namespace

void FailureNotice::send(std::string_view note) const {
  Notifier notifier(*this, note);
  sleep_until([&] { return notifier.advance(); }, Deadline::after(kPatience));
}

}  // namespace winnow::comm
