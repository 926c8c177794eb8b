// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp/mesh.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <list>
#include <string>
#include <utility>
#include <winnow/error.hpp>

#include "comm/transport/failure.hpp"
#include "comm/transport/poll.hpp"
#include "comm/transport/tcp/rank_failure.hpp"

namespace winnow::comm {
namespace {

using Clock = Deadline::Clock;

constexpr std::chrono::milliseconds kStagger{250};  // from one endpoint of a peer to the next
constexpr std::chrono::milliseconds kLongestSleep{100};
constexpr std::chrono::seconds kStrangersPatience{5};       // for a greeting
constexpr std::chrono::milliseconds kPartingPatience{500};  // to tell others of a failure
constexpr std::size_t kMostIncoming = 256;                  // besides those of all ranks
constexpr std::size_t kMostText = 1024;                     // of a greeting or a refusal

/// The purpose of a connection.
enum class Purpose : std::uint32_t { control, data };

/// The text of a greeting, as it lies in memory. In a refusal a note_of the failure follows.
struct Greeting {
  Purpose purpose = Purpose::control;
  std::int32_t rank = 0, size = 0;       // the sender's
  TcpTls::Mode tls = TcpTls::Mode::off;  // of the sender
  std::uint64_t digest = 0;              // of the sender's list
};
static_assert(sizeof(Greeting) == 24);

std::string_view as_text(const Greeting& greeting) {
  return {reinterpret_cast<const char*>(&greeting), sizeof greeting};
}

bool read_greeting(std::string_view text, Greeting& greeting) {
  if (text.size() < sizeof greeting) return false;
  std::memcpy(&greeting, text.data(), sizeof greeting);
  return true;
}

/// The credentials of a rank's listener: whoever has its address has them, and has the secret if
/// there is one.
Credentials credentials_of(const TcpPorts& ports, const TcpAddress& address) {
  std::string purpose = "the listener ";
  purpose.append(reinterpret_cast<const char*>(address.nonce.data()), address.nonce.size());
  return ports.credentials.derive(purpose);
}

class Mesh {
 public:
  Mesh(TcpPorts& ports, int rank, std::span<const std::string> addresses)
      : ports_(ports),
        rank_(rank),
        size_(static_cast<int>(addresses.size())),
        digest_(digest_of(addresses)),
        mine_(credentials_of(ports, ports.address)),
        peers_(addresses.size()),
        links_(addresses.size()) {}

  /// Throws UsageError if the list is not of addresses or not this rank's.
  void read(std::span<const std::string> addresses);
  std::vector<TcpLink> run(Deadline deadline);
  /// `note`: a note_of why this rank cannot connect.
  void tell_all(std::string_view note) noexcept;

 private:
  /// A connection that has not led to anything yet.
  struct Attempt {
    NoteChannel channel;
    Endpoint endpoint{};
    Clock::time_point since = Clock::now();
    bool connected = false;
    bool greeted = false;  // this rank has greeted on an outgoing one, the peer on an incoming one
    int rank = -1;         // of an incoming one that has greeted, or who is to be told of a failure
    Purpose purpose = Purpose::control;
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
  Attempt attempt_at(const Endpoint& endpoint, Socket socket, int peer) const {
    return {.channel = NoteChannel(std::move(socket), NoteChannel::End::connected,
                                   credentials_of(ports_, peers_[at(peer)]), kMostText),
            .endpoint = endpoint};
  }
  bool complete() const;
  void expect_one_job(const Greeting& greeting) const;
  void expect_alive();
  [[noreturn]] static void fail_for(int peer, const Failure& why);
  void plan_outgoing();
  void advance(Outgoing& outgoing);
  void begin_attempt(Outgoing& outgoing);
  bool advance(Outgoing& outgoing, Attempt& attempt);
  void accept_all();
  bool drop_stranger();
  bool advance_incoming(Attempt& attempt);
  void sleep(Deadline deadline);
  std::string missing() const;

  TcpPorts& ports_;
  int rank_, size_;
  std::uint64_t digest_;
  Credentials mine_;               // of this rank's listener
  std::vector<TcpAddress> peers_;  // without endpoints if the text is no address
  std::vector<TcpLink> links_;
  std::list<Outgoing> outgoing_;
  std::list<Attempt> incoming_;
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
    accept_all();
    std::erase_if(incoming_, [this](Attempt& attempt) { return !advance_incoming(attempt); });
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
    outgoing.attempts.push_back(attempt_at(endpoint, std::move(socket), outgoing.peer));
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
      return attempt.since + kStrangersPatience > Clock::now() || lose("no connection");
    if (errno != 0) return lose(errno_text(errno));
    attempt.connected = true;
    if (!attempt.channel.greet()) return lose("takes no greeting");
  }
  const NoteReader::Outcome outcome = attempt.channel.read();
  if (attempt.channel.has_met() && !attempt.greeted) {
    attempt.greeted = true;
    if (!attempt.channel.send(NoteKind::greeting, as_text(greeting_of(outgoing.purpose))))
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
  Greeting answer;
  const std::string_view text = attempt.channel.text();
  if (!read_greeting(text, answer)) return lose("somebody else answers there");
  if (attempt.channel.kind() == NoteKind::refusal)
    fail_for(outgoing.peer, failure_in(text.substr(sizeof answer)));
  expect_one_job(answer);
  if (attempt.channel.kind() != NoteKind::welcome || answer.rank != outgoing.peer)
    return lose("somebody else answers there");
  if (!attempt.channel.send(NoteKind::chosen, "")) return lose("the connection was closed");
  keep_link(outgoing.peer, outgoing.purpose, std::move(attempt.channel));
  outgoing.done = true;
  return false;
}

void Mesh::accept_all() {
  for (const Socket& listening : ports_.sockets) {
    for (;;) {
      Socket socket = accept_from(listening);
      if (!socket.is_open() && has_too_many_files(errno)) {
        const int code = errno;
        // Ranks alone do not make more than two each at a time: these may be theirs.
        if (incoming_.size() <= 2 * links_.size() || !drop_stranger())
          fail_for_files("accepting the connection of a rank", code);
        continue;
      }
      if (!socket.is_open()) break;
      if (incoming_.size() >= kMostIncoming + 2 * links_.size()) drop_stranger();
      incoming_.push_back({.channel = NoteChannel(std::move(socket), NoteChannel::End::accepted,
                                                  mine_, kMostText)});
    }
  }
}

/// The one that has waited longest; it comes again if it is a rank's. False if there is none.
bool Mesh::drop_stranger() {
  const auto first =
      std::ranges::find_if(incoming_, [](const Attempt& attempt) { return !attempt.greeted; });
  if (first == incoming_.end()) return false;
  incoming_.erase(first);
  return true;
}

// False if it has ended: it became a link, or is a stranger's.
bool Mesh::advance_incoming(Attempt& attempt) {
  switch (attempt.channel.read()) {
    case NoteReader::Outcome::pending:
      return attempt.greeted || attempt.since + kStrangersPatience > Clock::now();
    case NoteReader::Outcome::ended:
      return false;
    case NoteReader::Outcome::complete:
      break;
  }
  const NoteKind kind = attempt.channel.kind();
  if (attempt.greeted) {
    if (kind == NoteKind::chosen && !has_link(attempt.rank, attempt.purpose))
      keep_link(attempt.rank, attempt.purpose, std::move(attempt.channel));
    return false;
  }
  Greeting greeting;
  const std::string_view text = attempt.channel.text();
  if (!read_greeting(text, greeting)) return false;
  if (kind == NoteKind::refusal) fail_for(greeting.rank, failure_in(text.substr(sizeof greeting)));
  if (kind != NoteKind::greeting) return false;
  expect_one_job(greeting);
  const bool is_purpose = greeting.purpose == Purpose::control || greeting.purpose == Purpose::data;
  if (greeting.rank <= rank_ || !is_purpose) return false;
  attempt.greeted = true;
  attempt.rank = greeting.rank;
  attempt.purpose = greeting.purpose;
  return attempt.channel.send(NoteKind::welcome, as_text(greeting_of(greeting.purpose))) &&
         advance_incoming(attempt);
}

void Mesh::sleep(Deadline deadline) {
  polled_.clear();
  for (const Socket& listening : ports_.sockets)
    polled_.push_back({.fd = listening.get(), .events = POLLIN, .revents = 0});
  for (const Attempt& attempt : incoming_)
    polled_.push_back({.fd = attempt.channel.socket().get(), .events = POLLIN, .revents = 0});
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

// Over the control connection of those that have one, else over a connection for this alone. A rank
// also passes on what it was told: who began may have another list and not know everyone. Then it
// answers those that connect to it. If it can open no more files, it gives up those that it has.
void Mesh::tell_all(std::string_view note) noexcept {
  try {
    outgoing_.clear();
    for (Attempt& attempt : incoming_)  // that the peer may have for a link already
      if (attempt.greeted && attempt.purpose == Purpose::control)
        (void)attempt.channel.send(NoteKind::abort, note.substr(0, kMostText));
    incoming_.clear();
    std::list<std::pair<int, Endpoint>> ways;  // to those that have no connection
    std::vector<bool> told(links_.size());
    for (int peer = 0; peer < size_; ++peer) {
      const TcpAddress& address = peers_[at(peer)];
      told[at(peer)] = links_[at(peer)].control.is_open() || peer == rank_ ||
                       address.nonce == ports_.address.nonce;
      if (links_[at(peer)].control.is_open())
        (void)links_[at(peer)].control.send(NoteKind::abort, note.substr(0, kMostText));
      if (told[at(peer)]) continue;
      for (const Endpoint& endpoint : reachable(address, ports_.address.machine))
        ways.emplace_back(peer, endpoint);
    }
    std::string text(as_text(greeting_of(Purpose::control)));
    text += note.substr(0, kMostText - text.size());
    std::list<Attempt> partings;
    const auto is_over = [&](Attempt& attempt) {
      if (is_connecting(attempt.channel.socket(), attempt.endpoint)) return false;
      if (errno != 0) return true;
      attempt.channel.refuse(text);
      told[at(attempt.rank)] = true;
      return true;
    };
    const auto is_answered = [&](Attempt& attempt) {
      const NoteReader::Outcome outcome = attempt.channel.read();
      Greeting greeting;
      if (outcome == NoteReader::Outcome::complete &&
          read_greeting(attempt.channel.text(), greeting)) {
        (void)attempt.channel.send(NoteKind::refusal, text);
        if (greeting.rank >= 0 && greeting.rank < size_) told[at(greeting.rank)] = true;
      }
      return outcome != NoteReader::Outcome::pending;
    };
    const auto give_up_files = [&] {
      ports_.sockets.clear();
      incoming_.clear();
    };
    const auto all_over = [&] {
      try {
        accept_all();
      } catch (const CommError&) {
        give_up_files();
      }
      std::erase_if(incoming_, is_answered);
      std::erase_if(partings, is_over);
      std::erase_if(ways, [&](const auto& way) { return told[at(way.first)]; });
      while (!ways.empty()) {
        const auto& [peer, endpoint] = ways.front();
        Socket socket = connect_to(endpoint);
        if (!socket.is_open() && has_too_many_files(errno)) {
          give_up_files();
          break;  // until one of those that are open is over
        }
        if (socket.is_open()) {
          partings.push_back(attempt_at(endpoint, std::move(socket), peer));
          partings.back().rank = peer;
        }
        ways.pop_front();
      }
      return std::ranges::all_of(told, [](bool is_told) { return is_told; });
    };
    sleep_until(all_over, Deadline::after(kPartingPatience));
  } catch (...) {
    // They wait until their deadline.
  }
}

/// At the first free port of the range; a Unix socket has no port.
Socket listen_within(const Endpoint& endpoint, PortRange range) {
  if (endpoint.family() == AF_UNIX) return listen_at(endpoint);
  for (int port = range.first; port < range.last; ++port) {
    if (port == range.left_out) continue;
    Socket socket = listen_at(endpoint.at_port(port));
    if (socket.is_open() || errno != EADDRINUSE) return socket;
  }
  return listen_at(endpoint.at_port(range.last));
}

}  // namespace

TcpPorts open_ports(std::string_view interfaces, Reach reach, PortRange range) {
  TcpPorts ports{.address = {.nonce = TcpAddress::new_nonce(),
                             .machine = TcpAddress::this_machine(),
                             .endpoints = {}},
                 .sockets = {},
                 .credentials = Credentials(),
                 .tls = TlsContext()};
  int code = 0;
  for (const Endpoint& endpoint : local_endpoints(interfaces, reach)) {
    Socket socket = listen_within(endpoint, range);
    if (!socket.is_open()) {
      code = errno;
      if (has_too_many_files(code)) fail_for_files("listening for ranks", code);
      continue;
    }
    ports.address.endpoints.push_back(Endpoint::of(socket));
    ports.sockets.push_back(std::move(socket));
  }
  const bool reaches_hosts = std::ranges::any_of(
      ports.address.endpoints, [](const Endpoint& one) { return one.family() != AF_UNIX; });
  if (ports.sockets.empty() || (range.first > 0 && !reaches_hosts)) {
    std::string where = "a TcpListener can listen nowhere";
    if (range.first > 0)
      where += " in ports " + std::to_string(range.first) + " to " + std::to_string(range.last);
    WINNOW_EXPECTS(range.first == 0 || code != EADDRINUSE,
                   where +
                       ", which others have: name more in WINNOW_TCP_PORTS or "
                       "TcpOptions::ports, one for each rank of a host at least");
    fail_system(where, code);
  }
  return ports;
}

std::vector<TcpLink> connect_mesh(TcpPorts& ports, int rank, std::span<const std::string> addresses,
                                  Deadline deadline) {
  Mesh mesh(ports, rank, addresses);
  try {
    mesh.read(addresses);
    return mesh.run(deadline);
  } catch (const Error& error) {
    const Failure why = failure_of(error);
    mesh.tell_all(note_of(why.text, why.kind));
    throw;
  }
}

}  // namespace winnow::comm
