// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp/mesh.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <list>
#include <utility>
#include <winnow/error.hpp>

#include "comm/transport/failure_latch.hpp"
#include "comm/transport/poll.hpp"
#include "comm/transport/tcp/note.hpp"

namespace winnow::comm {
namespace {

using Clock = Deadline::Clock;

constexpr std::chrono::milliseconds kStagger{250};  // from one endpoint of a peer to the next
constexpr std::chrono::milliseconds kLongestSleep{100};
constexpr std::chrono::seconds kStrangersPatience{5};       // for a greeting
constexpr std::chrono::milliseconds kPartingPatience{500};  // to tell others of a failure
constexpr std::size_t kMostIncoming = 256;                  // besides those of all ranks
constexpr std::size_t kMostText = 1024;                     // of a greeting or a refusal
constexpr std::uint32_t kVersion = 1;

/// What a connection is for.
enum class Purpose : std::uint32_t { control, data };

/// The text of a greeting, as it lies in memory. The nonce is the receiver's.
struct Greeting {
  TcpAddress::Nonce nonce{};
  std::uint32_t version = kVersion;
  Purpose purpose = Purpose::control;
  std::int32_t rank = 0, size = 0;  // the sender's
  std::uint64_t digest = 0;         // of the sender's list
};
static_assert(sizeof(Greeting) == 40);

std::string_view as_text(const Greeting& greeting) {
  return {reinterpret_cast<const char*>(&greeting), sizeof greeting};
}

/// Whether `text` begins with a greeting for `nonce`. Refusals carry the reason behind it.
bool is_for(const TcpAddress::Nonce& nonce, std::string_view text, Greeting& greeting) {
  if (text.size() < sizeof greeting) return false;
  std::memcpy(&greeting, text.data(), sizeof greeting);
  return greeting.nonce == nonce;
}

class Mesh {
 public:
  Mesh(const TcpPorts& ports, int rank, std::span<const std::string> addresses)
      : ports_(ports),
        rank_(rank),
        size_(static_cast<int>(addresses.size())),
        digest_(digest_of(addresses)),
        links_(addresses.size()) {
    for (const std::string& text : addresses) peers_.push_back(TcpAddress::parse(text));
  }

  std::vector<TcpLink> run(Deadline deadline);
  void tell_all(std::string_view why) noexcept;

 private:
  /// A connection that has not led to anything yet.
  struct Attempt {
    Socket socket;
    NoteReader reader{kMostText};
    Endpoint endpoint{};
    Clock::time_point since = Clock::now();
    bool greeted = false;  // this rank has greeted on an outgoing one, the peer on an incoming one
    int rank = -1;         // of an incoming one that has greeted
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
  Socket& link(int peer, Purpose purpose) {
    TcpLink& link = links_[at(peer)];
    return purpose == Purpose::control ? link.control : link.data;
  }
  Greeting greeting_for(int peer, Purpose purpose) const {
    return {.nonce = peers_[at(peer)].nonce,
            .purpose = purpose,
            .rank = rank_,
            .size = size_,
            .digest = digest_};
  }
  bool complete() const;
  void expect_one_job(const Greeting& greeting) const;
  void expect_alive();
  [[noreturn]] void fail_for(int peer, std::string_view why);
  void plan_outgoing();
  void advance(Outgoing& outgoing);
  void begin_attempt(Outgoing& outgoing);
  bool advance(Outgoing& outgoing, Attempt& attempt);
  void accept_all();
  bool advance_incoming(Attempt& attempt);
  void sleep(Deadline deadline);
  std::string missing() const;

  const TcpPorts& ports_;
  int rank_, size_;
  std::uint64_t digest_;
  std::vector<TcpAddress> peers_;
  std::vector<TcpLink> links_;
  std::list<Outgoing> outgoing_;
  std::list<Attempt> incoming_;
  std::vector<pollfd> polled_;
};

std::vector<TcpLink> Mesh::run(Deadline deadline) {
  plan_outgoing();
  for (;;) {
    for (Outgoing& outgoing : outgoing_) advance(outgoing);
    accept_all();
    std::erase_if(incoming_, [this](Attempt& attempt) { return !advance_incoming(attempt); });
    if (complete()) return std::move(links_);
    expect_alive();
    if (deadline.passed()) throw CommError("the deadline passed while it waited for " + missing());
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

/// A peer that knows this rank's nonce, but differs in what else it was given.
void Mesh::expect_one_job(const Greeting& greeting) const {
  const std::string peer = "rank " + std::to_string(greeting.rank);
  WINNOW_EXPECTS(greeting.version == kVersion,
                 peer + " speaks version " + std::to_string(greeting.version) +
                     " of Winnow's TCP transport, this rank version " + std::to_string(kVersion));
  WINNOW_EXPECTS(greeting.size == size_,
                 peer + " was given addresses of " + std::to_string(greeting.size) +
                     " ranks, rank " + std::to_string(rank_) + " of " + std::to_string(size_));
  WINNOW_EXPECTS(greeting.digest == digest_ && greeting.rank >= 0 && greeting.rank < size_,
                 peer + " and rank " + std::to_string(rank_) +
                     " were given different addresses, or the same in another order");
}

/// No peer that is connected already has aborted or died.
void Mesh::expect_alive() {
  for (int peer = 0; peer < size_; ++peer) {
    const Socket& control = links_[at(peer)].control;
    if (!control.is_open()) continue;
    const NoteAhead ahead = look_ahead(control);
    if (ahead == NoteAhead::ended) fail_for(peer, "gone while the ranks were connecting");
    NoteReader reader(kMostText);
    if (ahead == NoteAhead::abort && reader.read(control) == NoteReader::Outcome::complete)
      fail_for(peer, reader.text());
  }
}

void Mesh::fail_for(int peer, std::string_view why) {
  throw CommError("rank " + std::to_string(peer) + ": " + std::string(why));
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
    outgoing.attempts.push_back({.socket = std::move(socket), .endpoint = endpoint});
    return;
  }
  outgoing.problem = endpoint.text() + ": " + errno_text(errno);
  if (outgoing.next < outgoing.endpoints.size()) outgoing.next_at = Clock::now();
}

// False if the attempt has ended: well if outgoing.done.
bool Mesh::advance(Outgoing& outgoing, Attempt& attempt) {
  const auto lose = [&](const std::string& why) {
    outgoing.problem = attempt.endpoint.text() + ": " + why;
    return false;
  };
  if (!attempt.greeted) {
    if (is_connecting(attempt.socket, attempt.endpoint))
      return attempt.since + kStrangersPatience > Clock::now() || lose("no connection");
    if (errno != 0) return lose(errno_text(errno));
    const Greeting greeting = greeting_for(outgoing.peer, outgoing.purpose);
    if (!send_note(attempt.socket, NoteKind::hello, as_text(greeting)))
      return lose("takes no greeting");
    attempt.greeted = true;
  }
  switch (attempt.reader.read(attempt.socket)) {
    case NoteReader::Outcome::pending:
      return true;  // its process may not have come to it yet
    case NoteReader::Outcome::ended:
      return lose(attempt.reader.problem());
    case NoteReader::Outcome::complete:
      break;
  }
  Greeting answer;
  const std::string_view text = attempt.reader.text();
  if (!is_for(ports_.address.nonce, text, answer)) return lose("somebody else answers there");
  if (attempt.reader.kind() == NoteKind::refusal)
    fail_for(outgoing.peer, text.substr(sizeof answer));
  expect_one_job(answer);
  if (attempt.reader.kind() != NoteKind::welcome || answer.rank != outgoing.peer)
    return lose("somebody else answers there");
  if (!send_note(attempt.socket, NoteKind::chosen, "")) return lose("the connection was closed");
  link(outgoing.peer, outgoing.purpose) = std::move(attempt.socket);
  outgoing.done = true;
  return false;
}

void Mesh::accept_all() {
  for (const Socket& listening : ports_.sockets) {
    for (;;) {
      Socket socket = accept_from(listening);
      if (!socket.is_open()) break;
      incoming_.push_back({.socket = std::move(socket)});
      const auto is_stranger = [](const Attempt& attempt) { return !attempt.greeted; };
      if (incoming_.size() > kMostIncoming + 2 * links_.size())
        incoming_.erase(std::ranges::find_if(incoming_, is_stranger));
    }
  }
}

// False if it has ended: it became a link, or is a stranger's.
bool Mesh::advance_incoming(Attempt& attempt) {
  switch (attempt.reader.read(attempt.socket)) {
    case NoteReader::Outcome::pending:
      return attempt.greeted || attempt.since + kStrangersPatience > Clock::now();
    case NoteReader::Outcome::ended:
      return false;
    case NoteReader::Outcome::complete:
      break;
  }
  if (attempt.greeted) {
    if (attempt.reader.kind() == NoteKind::chosen && !link(attempt.rank, attempt.purpose).is_open())
      link(attempt.rank, attempt.purpose) = std::move(attempt.socket);
    return false;
  }
  Greeting greeting;
  const std::string_view text = attempt.reader.text();
  if (!is_for(ports_.address.nonce, text, greeting)) return false;
  if (attempt.reader.kind() == NoteKind::refusal)
    fail_for(greeting.rank, text.substr(sizeof greeting));
  if (attempt.reader.kind() != NoteKind::hello) return false;
  expect_one_job(greeting);
  const bool is_purpose = greeting.purpose == Purpose::control || greeting.purpose == Purpose::data;
  if (greeting.rank <= rank_ || !is_purpose) return false;
  attempt.greeted = true;
  attempt.rank = greeting.rank;
  attempt.purpose = greeting.purpose;
  return send_note(attempt.socket, NoteKind::welcome,
                   as_text(greeting_for(greeting.rank, greeting.purpose))) &&
         advance_incoming(attempt);
}

void Mesh::sleep(Deadline deadline) {
  polled_.clear();
  for (const Socket& listening : ports_.sockets)
    polled_.push_back({.fd = listening.get(), .events = POLLIN, .revents = 0});
  for (const Attempt& attempt : incoming_)
    polled_.push_back({.fd = attempt.socket.get(), .events = POLLIN, .revents = 0});
  auto until = std::min(deadline.at(), Clock::now() + kLongestSleep);
  for (const Outgoing& outgoing : outgoing_) {
    if (outgoing.done) continue;
    until = std::min(until, outgoing.next_at);
    for (const Attempt& attempt : outgoing.attempts)
      polled_.push_back({.fd = attempt.socket.get(),
                         .events = static_cast<short>(attempt.greeted ? POLLIN : POLLOUT),
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
// also passes on what it was told: who began may have another list and not know everyone.
void Mesh::tell_all(std::string_view why) noexcept {
  try {
    std::list<Outgoing> partings;
    for (int peer = 0; peer < size_; ++peer) {
      const TcpAddress& address = peers_[at(peer)];
      if (address.nonce == ports_.address.nonce) continue;
      if (links_[at(peer)].control.is_open()) {
        (void)send_note(links_[at(peer)].control, NoteKind::abort, why.substr(0, kMostText));
        continue;
      }
      for (const Endpoint& endpoint : reachable(address, ports_.address.machine)) {
        Socket socket = connect_to(endpoint);
        if (!socket.is_open()) continue;
        partings.push_back({.peer = peer, .purpose = Purpose::control, .endpoints = {}});
        partings.back().attempts.push_back({.socket = std::move(socket), .endpoint = endpoint});
      }
    }
    const auto is_over = [&](const Outgoing& parting) {
      const Attempt& attempt = parting.attempts.front();
      if (is_connecting(attempt.socket, attempt.endpoint)) return false;
      std::string text(as_text(greeting_for(parting.peer, Purpose::control)));
      text += why.substr(0, kMostText - text.size());
      (void)send_note(attempt.socket, NoteKind::refusal, text);
      return true;
    };
    const auto all_over = [&] {
      std::erase_if(partings, is_over);
      return partings.empty();
    };
    sleep_until(all_over, Deadline::after(kPartingPatience));
  } catch (...) {
    // They wait until their deadline.
  }
}

}  // namespace

TcpPorts open_ports(std::string_view interfaces) {
  TcpPorts ports{.address = {.nonce = TcpAddress::new_nonce(),
                             .machine = TcpAddress::this_machine(),
                             .endpoints = {}},
                 .sockets = {}};
  int code = 0;
  for (const Endpoint& endpoint : local_endpoints(interfaces)) {
    Socket socket = listen_at(endpoint);
    if (!socket.is_open()) {
      code = errno;
      continue;
    }
    ports.address.endpoints.push_back(Endpoint::of(socket));
    ports.sockets.push_back(std::move(socket));
  }
  if (ports.sockets.empty()) fail_system("a TcpListener can listen nowhere", code);
  return ports;
}

std::vector<TcpLink> connect_mesh(const TcpPorts& ports, int rank,
                                  std::span<const std::string> addresses, Deadline deadline) {
  Mesh mesh(ports, rank, addresses);
  try {
    const auto size = static_cast<int>(addresses.size());
    WINNOW_EXPECTS(rank >= 0 && rank < size, "rank " + std::to_string(rank) + " of " +
                                                 std::to_string(size) +
                                                 " addresses: must be from 0 to one less");
    WINNOW_EXPECTS(addresses[static_cast<std::size_t>(rank)] == ports.address.text(),
                   "address " + std::to_string(rank) + " of " + std::to_string(size) +
                       " is not that of the listener which connects as rank " +
                       std::to_string(rank));
    return mesh.run(deadline);
  } catch (const Error& error) {
    mesh.tell_all(reason_of(error));
    throw;
  }
}

}  // namespace winnow::comm
