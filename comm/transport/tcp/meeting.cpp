// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <list>
#include <string>
#include <utility>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/tcp.hpp>

#include "comm/transport/failure_latch.hpp"
#include "comm/transport/poll.hpp"
#include "comm/transport/tcp/endpoint.hpp"
#include "comm/transport/tcp/note.hpp"

namespace winnow {
namespace {

using comm::Endpoint;
using comm::NoteKind;
using comm::NoteReader;
using comm::Socket;

// Each rank but 0 sends a `join` with its job, rank, size and address, a line each. Rank 0 answers
// at once with a `welcome`, and when all have come with the `list` of addresses, a line each; or
// with a `refusal`.

using Clock = Deadline::Clock;

constexpr std::size_t kMostJoin = std::size_t{64} << 10;  // bytes
constexpr std::size_t kMostList = std::size_t{64} << 20;
constexpr std::size_t kMostGuests = 256;  // besides those of all ranks
constexpr std::chrono::seconds kVisitorsPatience{5};
constexpr std::chrono::seconds kWelcomePatience{2};  // at first: it doubles each time
constexpr std::chrono::seconds kMostPatience{60};
constexpr std::chrono::seconds kRefusalPatience{1};  // to tell the others why it cannot begin
constexpr std::chrono::milliseconds kPause{2};       // between two polls
constexpr std::chrono::milliseconds kRetryPause{50};

/// The environment's number of that name.
int number_of(const char* name, const char* text) {
  const std::string_view word = text == nullptr ? "" : text;
  int number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  WINNOW_EXPECTS(
      error == std::errc() && end == word.data() + word.size(),
      std::string(name) + "='" + std::string(word) + "': must be a number, as torchrun sets it");
  return number;
}

std::string cut_line(std::string_view& text) {
  const auto end = text.find('\n');
  std::string line(text.substr(0, end));
  text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  return line;
}

/// Rank 0's end.
class Host {
 public:
  Host(const TcpMeeting& meeting, const std::string& address)
      : meeting_(meeting), guests_(static_cast<std::size_t>(meeting.size)) {
    guests_.front().address = address;
  }

  std::vector<std::string> collect(Deadline deadline);

 private:
  struct Guest {
    Socket socket;
    std::string address;  // empty: has not come
  };
  struct Visitor {
    Socket socket;
    NoteReader reader{kMostJoin};
    Clock::time_point since = Clock::now();
  };
  void listen(Deadline deadline);
  bool try_to_listen();
  void admit_all();
  bool admit(Visitor& visitor);
  bool all_here();
  std::string missing() const;
  void refuse_all(const std::string& why) noexcept;

  const TcpMeeting& meeting_;
  Socket listening_;
  std::vector<Guest> guests_;  // by rank
  std::list<Visitor> visitors_;
};

std::vector<std::string> Host::collect(Deadline deadline) {
  listen(deadline);
  try {
    const auto all_came = [this] {
      admit_all();
      return all_here();
    };
    if (!comm::sleep_until(all_came, deadline, kPause))
      throw CommError("the deadline passed while it waited at port " +
                      std::to_string(meeting_.port) + " for " + missing());
  } catch (const Error& error) {
    refuse_all(comm::reason_of(error));
    throw;
  }
  std::vector<std::string> addresses;
  std::string list;
  for (const Guest& guest : guests_) {
    addresses.push_back(guest.address);
    list += guest.address + '\n';
  }
  for (const Guest& guest : guests_)
    if (guest.socket.is_open()) (void)send_note(guest.socket, NoteKind::list, list, deadline);
  return addresses;
}

// The port may still be in use by the last attempt of this job.
void Host::listen(Deadline deadline) {
  if (!comm::sleep_until([this] { return try_to_listen(); }, deadline, kRetryPause))
    comm::fail_system("rank 0 cannot listen at port " + std::to_string(meeting_.port), errno);
}

bool Host::try_to_listen() {
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  any6.sin6_port = htons(static_cast<std::uint16_t>(meeting_.port));
  listening_ = comm::listen_at({reinterpret_cast<const sockaddr*>(&any6), sizeof any6}, true);
  if (listening_.is_open() || errno == EADDRINUSE) return listening_.is_open();
  sockaddr_in any4{};  // a host without IPv6
  any4.sin_family = AF_INET;
  any4.sin_port = any6.sin6_port;
  listening_ = comm::listen_at({reinterpret_cast<const sockaddr*>(&any4), sizeof any4});
  return listening_.is_open();
}

void Host::admit_all() {
  for (;;) {
    Socket socket = comm::accept_from(listening_);
    if (!socket.is_open()) break;
    if (visitors_.size() == kMostGuests + guests_.size()) visitors_.pop_front();
    visitors_.push_back({.socket = std::move(socket)});
  }
  std::erase_if(visitors_, [this](Visitor& visitor) { return !admit(visitor); });
}

// False if the visitor is a guest now, or sent away.
bool Host::admit(Visitor& visitor) {
  switch (visitor.reader.read(visitor.socket)) {
    case NoteReader::Outcome::pending:
      return visitor.since + kVisitorsPatience > Clock::now();
    case NoteReader::Outcome::ended:
      return false;
    case NoteReader::Outcome::complete:
      break;
  }
  if (visitor.reader.kind() != NoteKind::join) return false;
  std::string_view text = visitor.reader.text();
  const std::string job = cut_line(text), rank_word = cut_line(text), size_word = cut_line(text);
  if (job != meeting_.job) {
    (void)send_note(visitor.socket, NoteKind::refusal, "job '" + meeting_.job + "' meets there");
    return false;
  }
  int rank = -1, size = -1;
  (void)std::from_chars(rank_word.data(), rank_word.data() + rank_word.size(), rank);
  (void)std::from_chars(size_word.data(), size_word.data() + size_word.size(), size);
  const auto expect = [&](bool holds, const std::string& why) {
    if (holds) return;
    (void)send_note(visitor.socket, NoteKind::refusal, comm::usage_reason(why));
    fail_usage(why);
  };
  expect(size == meeting_.size, "rank " + rank_word + " says that there are " + size_word +
                                    " ranks, rank 0 " + std::to_string(meeting_.size));
  expect(rank > 0 && rank < size, "a rank " + rank_word + " of " + size_word +
                                      " has come: must be from 1 to " + std::to_string(size - 1));
  Guest& guest = guests_[static_cast<std::size_t>(rank)];
  // One whose connection has ended may have been started again.
  const bool is_new = guest.address.empty() || look_ahead(guest.socket) == comm::NoteAhead::ended;
  expect(is_new, "two processes say that they are rank " + rank_word);
  guest = {.socket = std::move(visitor.socket), .address = std::string(text)};
  (void)send_note(guest.socket, NoteKind::welcome, {});
  return false;
}

// One that has gone since will come again, if it lives.
bool Host::all_here() {
  bool all = true;
  for (Guest& guest : guests_) {
    if (guest.socket.is_open() && look_ahead(guest.socket) == comm::NoteAhead::ended) guest = {};
    all = all && !guest.address.empty();
  }
  return all;
}

std::string Host::missing() const {
  std::string text;
  for (std::size_t rank = 0; rank < guests_.size(); ++rank) {
    if (guests_[rank].address.empty())
      text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank);
  }
  return text;
}

// Those that have not come yet, too: it answers the port for a moment longer.
void Host::refuse_all(const std::string& why) noexcept {
  try {
    const auto all_told = [&] {
      for (Visitor& visitor : visitors_) (void)send_note(visitor.socket, NoteKind::refusal, why);
      for (Guest& guest : guests_) {
        if (guest.socket.is_open()) (void)send_note(guest.socket, NoteKind::refusal, why);
        guest.socket.close();
      }
      visitors_.clear();
      for (;;) {
        Socket socket = comm::accept_from(listening_);
        if (!socket.is_open()) break;
        visitors_.push_back({.socket = std::move(socket)});
      }
      return false;
    };
    comm::sleep_until(all_told, Deadline::after(kRefusalPatience), kPause);
  } catch (...) {
    // They wait until their deadline.
  }
}

/// Another rank's end.
class Joiner {
 public:
  Joiner(const TcpMeeting& meeting, const std::string& address)
      : meeting_(meeting),
        text_(meeting.job + '\n' + std::to_string(meeting.rank) + '\n' +
              std::to_string(meeting.size) + '\n' + address) {}

  std::vector<std::string> collect(Deadline deadline) {
    for (std::size_t attempt = 0;; ++attempt) {
      if (visit(attempt, deadline)) return addresses();
      if (deadline.passed())
        throw CommError("the deadline passed while it waited for rank 0 at " + meeting_.host +
                        " port " + std::to_string(meeting_.port) + ": " + problem_);
      (void)comm::sleep_until([] { return false; }, Deadline::after(kRetryPause), kRetryPause);
    }
  }

 private:
  /// Tries one of the host's endpoints; true once the list is here.
  bool visit(std::size_t attempt, Deadline deadline);
  std::vector<std::string> addresses() const;

  const TcpMeeting& meeting_;
  std::string text_;
  NoteReader reader_{kMostList};
  std::string problem_ = "nobody answers";
  std::chrono::seconds patience_ = kWelcomePatience;
};

bool Joiner::visit(std::size_t attempt, Deadline deadline) {
  try {
    const std::vector<Endpoint> endpoints = comm::resolve(meeting_.host, meeting_.port);
    const Endpoint& endpoint = endpoints[attempt % endpoints.size()];
    const Socket socket = comm::connect_to(endpoint);
    if (!socket.is_open()) comm::fail_system("connect", errno);
    const auto is_connected = [&] { return !comm::is_connecting(socket, endpoint); };
    if (!comm::sleep_until(is_connected, deadline, kPause)) {
      problem_ = "its host does not answer";
      return false;
    }
    if (errno != 0) comm::fail_system("connect", errno);
    if (!send_note(socket, NoteKind::join, text_, deadline)) return false;
    reader_ = NoteReader(kMostList);
    NoteReader::Outcome outcome{};
    const auto is_answered = [&] {
      outcome = reader_.read(socket);
      return outcome != NoteReader::Outcome::pending;
    };
    problem_ = "what listens there does not answer";
    const Deadline soon = Deadline::after(patience_);
    if (!comm::sleep_until(is_answered, std::ranges::min(soon, deadline, {}, &Deadline::at),
                           kPause)) {
      patience_ = std::min(2 * patience_, kMostPatience);
      return false;
    }
    if (outcome == NoteReader::Outcome::complete && reader_.kind() == NoteKind::welcome) {
      problem_ = "it waits for other ranks";
      if (!comm::sleep_until(is_answered, deadline, kPause)) return false;
    }
    if (outcome == NoteReader::Outcome::ended) throw CommError(reader_.problem());
  } catch (const CommError& error) {
    problem_ = error.what();
    return false;
  }
  if (reader_.kind() == NoteKind::list) return true;
  problem_ = reader_.text();
  // A job that meets there now may be done soon; anything else is this job's own answer.
  if (reader_.kind() == NoteKind::refusal && !problem_.starts_with("job '"))
    throw CommError("rank 0: " + problem_);
  return false;
}

std::vector<std::string> Joiner::addresses() const {
  std::vector<std::string> all;
  for (std::string_view text = reader_.text(); !text.empty();) all.push_back(cut_line(text));
  return all;
}

}  // namespace

TcpMeeting TcpMeeting::from_environment() {
  TcpMeeting meeting;
  const char* const host = std::getenv("MASTER_ADDR");
  WINNOW_EXPECTS(host != nullptr,
                 "MASTER_ADDR is not set: it names the host of rank 0, as torchrun "
                 "sets it");
  meeting.host = host;
  meeting.rank = number_of("RANK", std::getenv("RANK"));
  meeting.size = number_of("WORLD_SIZE", std::getenv("WORLD_SIZE"));
  if (const char* const port = std::getenv("WINNOW_TCP_PORT"))
    meeting.port = number_of("WINNOW_TCP_PORT", port);
  if (const char* const job = std::getenv("TORCHELASTIC_RUN_ID")) meeting.job = job;
  return meeting;
}

std::unique_ptr<Transport> tcp_transport(const TcpMeeting& meeting, Deadline deadline,
                                         const TcpOptions& options) {
  const auto says = [](int number) { return std::to_string(number); };
  WINNOW_EXPECTS(meeting.size >= 1 && meeting.rank >= 0 && meeting.rank < meeting.size,
                 "rank " + says(meeting.rank) + " of " + says(meeting.size) +
                     ": must be from 0 to one less than the size");
  constexpr int kMostRanks = 1 << 16;  // a process has fewer sockets
  WINNOW_EXPECTS(meeting.size <= kMostRanks,
                 "size " + says(meeting.size) + ": must be at most " + std::to_string(kMostRanks));
  WINNOW_EXPECTS(meeting.port > 0 && meeting.port < (1 << 16),
                 "port " + says(meeting.port) + ": must be from 1 to 65535");
  WINNOW_EXPECTS(meeting.job.find('\n') == std::string::npos, "a job's name must be one line");
  TcpListener listener(options);
  if (meeting.size == 1) return listener.connect(0, std::array{listener.address()}, deadline);
  const std::vector<std::string> addresses =
      meeting.rank == 0 ? Host(meeting, listener.address()).collect(deadline)
                        : Joiner(meeting, listener.address()).collect(deadline);
  return listener.connect(meeting.rank, addresses, deadline);
}

}  // namespace winnow
