// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp/mesh.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <list>
#include <string>
#include <utility>
#include <winnow/error.hpp>

#include "comm/transport/failure.hpp"
#include "comm/transport/tcp/acceptor.hpp"
#include "comm/transport/tcp/failure_notice.hpp"
#include "comm/transport/tcp/greeting.hpp"
#include "comm/transport/tcp/rank_failure.hpp"

namespace winnow::comm {
namespace {

using Clock = Deadline::Clock;
using Purpose = Greeting::Purpose;

constexpr std::chrono::milliseconds kStagger{250};  // from one endpoint of a peer to the next
constexpr std::chrono::milliseconds kLongestSleep{100};

class Mesh {
 public:
  Mesh(TcpPorts& ports, int rank, std::span<const std::string> addresses)
      : ports_(ports),
        rank_(rank),
        size_(static_cast<int>(addresses.size())),
        digest_(digest_of(addresses)),
        peers_(addresses.size()),
        links_(addresses.size()),
        acceptor_("accepting the connection of a rank", ports.sockets,
                  ports.credentials_at(ports.address), 2 * addresses.size(), Greeting::kMostText) {}

  /// Throws UsageError if the list is not of addresses or not this rank's.
  void read(std::span<const std::string> addresses);
  std::vector<TcpLink> run(Deadline deadline);
  /// `note`: a note_of why this rank cannot connect.
  void notify_all(std::string_view note) noexcept;

 private:
  /// A connection to a peer that has not answered yet.
  struct Attempt {
    NoteChannel channel;
    Endpoint endpoint;
    Clock::time_point since = Clock::now();
    bool connected = false;
    bool greeted = false;
  };
  /// A connection to make.
  struct Outgoing {
    int peer;
    Purpose purpose;
    std::vector<Endpoint> endpoints;
    std::list<Attempt> attempts{};
    std::size_t next = 0;  // endpoint to try
    Clock::time_point next_at = Clock::now();
    std::string problem{};
    bool done = false;
  };

  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  bool has_link(int peer, Purpose purpose) const {
    const TcpLink& link = links_[at(peer)];
    return purpose == Purpose::control ? link.control.is_open() : link.data.is_open();
  }
  void keep_link(int peer, Purpose purpose, NoteChannel channel) {
    TcpLink& link = links_[at(peer)];
    if (purpose == Purpose::control)
      link.control = std::move(channel);
    else
      link.data = channel.release();
  }
  Greeting greeting_of(Purpose purpose) const {
    return {.purpose = purpose,
            .rank = rank_,
            .size = size_,
            .tls = ports_.tls.mode(),
            .digest = digest_};
  }
  bool complete() const;
  void expect_one_job(const Greeting& greeting) const;
  void expect_alive();
  [[noreturn]] static void fail_for(int peer, const Failure& why);
  void plan_outgoing();
  void advance(Outgoing& outgoing);
  void begin_attempt(Outgoing& outgoing);
  bool advance(Outgoing& outgoing, Attempt& attempt);
  bool advance(AcceptedConnection& incoming);
  void sleep(Deadline deadline);
  std::string missing() const;

  TcpPorts& ports_;
  int rank_, size_;
  std::uint64_t digest_;
  std::vector<TcpAddress> peers_;  // without endpoints if the text is no address
  std::vector<TcpLink> links_;
  std::list<Outgoing> outgoing_;
  Acceptor acceptor_;
  std::vector<pollfd> polled_;
};

void Mesh::read(std::span<const std::string> addresses) {
  std::string wrong;
  for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
    try {
      peers_[rank] = TcpAddress::parse(addresses[rank]);
    } catch (const UsageError& error) {  // the others are to learn of it
      if (wrong.empty()) wrong = "address " + std::to_string(rank) + ": " + error.what();
    }
  }
  WINNOW_EXPECTS(wrong.empty(), wrong);
  WINNOW_EXPECTS(rank_ >= 0 && rank_ < size_, "rank " + std::to_string(rank_) + " of " +
                                                  std::to_string(size_) +
                                                  " addresses: must be from 0 to one less");
  WINNOW_EXPECTS(addresses[at(rank_)] == ports_.address.text(),
                 "address " + std::to_string(rank_) + " of " + std::to_string(size_) +
                     " is not that of the listener which connects as rank " +
                     std::to_string(rank_));
}

std::vector<TcpLink> Mesh::run(Deadline deadline) {
  plan_outgoing();
  for (;;) {
    for (Outgoing& outgoing : outgoing_) advance(outgoing);
    acceptor_.accept_all();
    std::erase_if(acceptor_.connections(),
                  [this](AcceptedConnection& one) { return !advance(one); });
    if (complete()) return std::move(links_);
    expect_alive();
    if (deadline.passed()) fail_at_deadline("while it waited for " + missing());
    sleep(deadline);
  }
}

void Mesh::plan_outgoing() {
  for (int peer = 0; peer < rank_; ++peer) {
    for (const Purpose purpose : {Purpose::control, Purpose::data}) {
      outgoing_.push_back({.peer = peer,
                           .purpose = purpose,
                           .endpoints = reachable(peers_[at(peer)], ports_.address.machine)});
    }
  }
}

bool Mesh::complete() const {
  for (int peer = 0; peer < size_; ++peer) {
    const TcpLink& link = links_[at(peer)];
    if (peer != rank_ && !(link.control.is_open() && link.data.is_open())) return false;
  }
  return true;
}

/// A peer that has this rank's address, but differs in what else it was given.
void Mesh::expect_one_job(const Greeting& greeting) const {
  const std::string peer = "rank " + std::to_string(greeting.rank);
  WINNOW_EXPECTS(greeting.size == size_,
                 peer + " was given addresses of " + std::to_string(greeting.size) +
                     " ranks, rank " + std::to_string(rank_) + " of " + std::to_string(size_));
  WINNOW_EXPECTS(greeting.tls == ports_.tls.mode(),
                 peer + " and rank " + std::to_string(rank_) +
                     " differ in TLS: set WINNOW_TCP_TLS or TcpOptions::tls alike on all ranks");
  WINNOW_EXPECTS(greeting.digest == digest_ && greeting.rank >= 0 && greeting.rank < size_,
                 peer + " and rank " + std::to_string(rank_) +
                     " were given different addresses, or the same in another order");
}

/// No peer that is connected already has aborted or died.
void Mesh::expect_alive() {
  for (int peer = 0; peer < size_; ++peer) {
    NoteChannel& control = links_[at(peer)].control;
    if (!control.is_open()) continue;
    const NoteAhead ahead = look_ahead(control.socket());
    if (ahead == NoteAhead::ended) fail_for(peer, {"gone while the ranks were connecting"});
    if (ahead == NoteAhead::abort && control.read() == NoteReader::Outcome::complete)
      fail_for(peer, failure_in(control.text()));
  }
}

void Mesh::fail_for(int peer, const Failure& why) {
  RankFailure{.rank = peer, .why = why}.fail();
}

void Mesh::advance(Outgoing& outgoing) {
  if (outgoing.done) return;
  for (auto attempt = outgoing.attempts.begin(); attempt != outgoing.attempts.end();) {
    if (advance(outgoing, *attempt)) {
      ++attempt;
    } else if (outgoing.done) {
      outgoing.attempts.clear();
      return;
    } else {
      outgoing.next_at = std::min(outgoing.next_at, Clock::now() + kLongestSleep);
      attempt = outgoing.attempts.erase(attempt);
    }
  }
  if (Clock::now() >= outgoing.next_at && !outgoing.endpoints.empty()) begin_attempt(outgoing);
}

// At one endpoint at a time, and none at which an attempt waits for its answer.
void Mesh::begin_attempt(Outgoing& outgoing) {
  outgoing.next_at = Clock::now() + kStagger;
  const std::size_t chosen = outgoing.next++ % outgoing.endpoints.size();
  const Endpoint& endpoint = outgoing.endpoints[chosen];
  const auto is_tried = [&](const Attempt& attempt) { return attempt.endpoint == endpoint; };
  if (std::ranges::any_of(outgoing.attempts, is_tried)) return;
  Socket socket = connect_to(endpoint);
  if (socket.is_open()) {
    outgoing.attempts.push_back(
        {.channel =
             NoteChannel(std::move(socket), NoteChannel::End::connected,
                         ports_.credentials_at(peers_[at(outgoing.peer)]), Greeting::kMostText),
         .endpoint = endpoint});
    return;
  }
  if (has_too_many_files(errno))
    fail_for_files("connecting to rank " + std::to_string(outgoing.peer), errno);
  outgoing.problem = endpoint.text() + ": " + errno_text(errno);
  if (outgoing.next < outgoing.endpoints.size()) outgoing.next_at = Clock::now();
}

// False if the attempt has ended: well if outgoing.done.
bool Mesh::advance(Outgoing& outgoing, Attempt& attempt) {
  const auto lose = [&](const std::string& why) {
    outgoing.problem = attempt.endpoint.text() + ": " + why;
    return false;
  };
  if (!attempt.connected) {
    if (is_connecting(attempt.channel.socket(), attempt.endpoint))
      return attempt.since + AcceptedConnection::kPatience > Clock::now() || lose("no connection");
    if (errno != 0) return lose(errno_text(errno));
    attempt.connected = true;
    if (!attempt.channel.greet()) return lose("takes no greeting");
  }
  const NoteReader::Outcome outcome = attempt.channel.read();
  if (attempt.channel.has_met() && !attempt.greeted) {
    attempt.greeted = true;
    if (!attempt.channel.send(NoteKind::greeting, greeting_of(outgoing.purpose).text()))
      return lose("takes no greeting");
  }
  switch (outcome) {
    case NoteReader::Outcome::pending:
      return true;  // its process may not have come to it yet
    case NoteReader::Outcome::ended:
      return lose(attempt.channel.problem());
    case NoteReader::Outcome::complete:
      break;
  }
  const std::string_view text = attempt.channel.text();
  const auto answer = Greeting::read(text);
  if (!answer) return lose("somebody else answers there");
  if (attempt.channel.kind() == NoteKind::refusal)
    fail_for(outgoing.peer, failure_in(text.substr(sizeof *answer)));
  expect_one_job(*answer);
  if (attempt.channel.kind() != NoteKind::welcome || answer->rank != outgoing.peer)
    return lose("somebody else answers there");
  if (!attempt.channel.send(NoteKind::chosen, "")) return lose("the connection was closed");
  keep_link(outgoing.peer, outgoing.purpose, std::move(attempt.channel));
  outgoing.done = true;
  return false;
}

// False if it has ended: it became a link, or is a stranger's.
bool Mesh::advance(AcceptedConnection& incoming) {
  switch (incoming.channel.read()) {
    case NoteReader::Outcome::pending:
      return incoming.greeted || !incoming.is_late();
    case NoteReader::Outcome::ended:
      return false;
    case NoteReader::Outcome::complete:
      break;
  }
  const NoteKind kind = incoming.channel.kind();
  if (incoming.greeted) {
    if (kind == NoteKind::chosen && !has_link(incoming.rank, incoming.purpose))
      keep_link(incoming.rank, incoming.purpose, std::move(incoming.channel));
    return false;
  }
  const std::string_view text = incoming.channel.text();
  const auto greeting = Greeting::read(text);
  if (!greeting) return false;
  if (kind == NoteKind::refusal)
    fail_for(greeting->rank, failure_in(text.substr(sizeof *greeting)));
  if (kind != NoteKind::greeting) return false;
  expect_one_job(*greeting);
  const Purpose purpose = greeting->purpose;
  const bool is_purpose = purpose == Purpose::control || purpose == Purpose::data;
  if (greeting->rank <= rank_ || !is_purpose) return false;
  incoming.greeted = true;
  incoming.rank = greeting->rank;
  incoming.purpose = purpose;
  return incoming.channel.send(NoteKind::welcome, greeting_of(purpose).text()) && advance(incoming);
}

void Mesh::sleep(Deadline deadline) {
  polled_.clear();
  for (const Socket& listening : ports_.sockets)
    polled_.push_back({.fd = listening.get(), .events = POLLIN, .revents = 0});
  for (const AcceptedConnection& incoming : acceptor_.connections())
    polled_.push_back({.fd = incoming.channel.socket().get(), .events = POLLIN, .revents = 0});
  auto until = std::min(deadline.at(), Clock::now() + kLongestSleep);
  for (const Outgoing& outgoing : outgoing_) {
    if (outgoing.done) continue;
    until = std::min(until, outgoing.next_at);
    for (const Attempt& attempt : outgoing.attempts)
      polled_.push_back({.fd = attempt.channel.socket().get(),
                         .events = static_cast<short>(attempt.connected ? POLLIN : POLLOUT),
                         .revents = 0});
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
  ::poll(polled_.data(), polled_.size(), static_cast<int>(std::max<std::int64_t>(0, left.count())));
}

std::string Mesh::missing() const {
  std::string text;
  for (int peer = 0; peer < size_; ++peer) {
    const TcpLink& link = links_[at(peer)];
    if (peer == rank_ || (link.control.is_open() && link.data.is_open())) continue;
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(peer);
    for (const Outgoing& outgoing : outgoing_) {
      if (outgoing.peer != peer || outgoing.done || outgoing.problem.empty()) continue;
      text += " (" + outgoing.problem + ")";
      break;
    }
  }
  return text;
}

void Mesh::notify_all(std::string_view note) noexcept {
  try {
    outgoing_.clear();
    FailureNotice{.ports = ports_,
                  .greeting = greeting_of(Purpose::control),
                  .peers = peers_,
                  .links = links_,
                  .acceptor = acceptor_}
        .send(note);
  } catch (...) {
    // They wait until their deadline.
  }
}

}  // namespace

std::vector<TcpLink> connect_mesh(TcpPorts& ports, int rank, std::span<const std::string> addresses,
                                  Deadline deadline) {
  Mesh mesh(ports, rank, addresses);
  try {
    mesh.read(addresses);
    return mesh.run(deadline);
  } catch (const Error& error) {
    mesh.notify_all(note_of(error));
    throw;
  }
}

}  // namespace winnow::comm
