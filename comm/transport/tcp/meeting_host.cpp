// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp/meeting_host.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <iterator>
#include <utility>
#include <winnow/error.hpp>

#include "comm/transport/failure.hpp"
#include "comm/transport/poll.hpp"
#include "comm/transport/tcp/address.hpp"
#include "topology/words.hpp"

namespace winnow::comm {
namespace {

constexpr std::size_t kMostJoin = std::size_t{64} << 10;  // bytes
constexpr std::chrono::milliseconds kRefusalPatience{
    300};                                           // to notify the others why it cannot begin
constexpr std::chrono::milliseconds kHostPause{2};  // between two polls
constexpr std::chrono::milliseconds kRetryPause{50};

}  // namespace

Credentials credentials_of(const TcpMeeting& meeting, const TcpOptions& options) {
  return Credentials(options.secret)
      .derive("a meeting of " + std::to_string(meeting.size) + " ranks of job " + meeting.job);
}

bool is_stopped(const TcpMeeting& meeting) {
  return meeting.stop != nullptr && meeting.stop->load(std::memory_order_relaxed) != 0;
}

void expect_wanted(const TcpMeeting& meeting) {
  if (is_stopped(meeting)) throw CommError("another thread of this rank stopped the meeting");
}

std::vector<int> ports_of(const TcpMeeting& meeting, const Credentials& credentials) {
  std::vector<int> ports;
  if (meeting.port != 0) ports.push_back(meeting.port);
  if (meeting.port != 0 && meeting.problem.empty()) return ports;
  const auto first = std::to_integer<int>(credentials.derive("the first port").prove({}).front());
  for (int i = 0; i < TcpMeeting::kPorts; ++i)
    ports.push_back(TcpMeeting::kDefaultPort + (first + i) % TcpMeeting::kPorts);
  return ports;
}

namespace {

/// Where rank 0 listens, but for the port: at its interfaces, and at the numbers of loopback as
/// which its name is known here, such as Debian's 127.0.1.1.
std::vector<Endpoint> endpoints_of(const TcpMeeting& meeting, std::string_view interfaces) {
  std::vector<Endpoint> endpoints = local_endpoints(interfaces, reach_of(meeting.host));
  std::erase_if(endpoints, [](const Endpoint& at) { return at.family() == AF_UNIX; });
  if (std::ranges::none_of(endpoints, &Endpoint::is_local)) return endpoints;
  try {
    for (const Endpoint& named : resolve(meeting.host, 0))
      if (named.is_local() && std::ranges::find(endpoints, named) == endpoints.end())
        endpoints.push_back(named);
  } catch (const CommError&) {  // other ranks may know the name
  }
  return endpoints;
}

}  // namespace

MeetingHost::MeetingHost(const TcpMeeting& meeting, const TcpOptions& options,
                         const std::string& line)
    : meeting_(meeting),
      credentials_(credentials_of(meeting, options)),
      failure_(RankFailure::parse(line)),
      ports_(ports_of(meeting, credentials_)),
      guests_(static_cast<std::size_t>(meeting.size)),
      visitors_("a meeting cannot accept a connection", listening_, credentials_, guests_.size(),
                kMostJoin) {
  guests_.front().line = line;
  try {
    endpoints_ = endpoints_of(meeting, options.interfaces);
  } catch (const UsageError&) {
    if (!failure_) throw;
    endpoints_ = endpoints_of(meeting, {});
  }
}

std::vector<std::string> MeetingHost::collect(Deadline deadline) {
  listen(deadline);
  try {
    const auto is_over = [this] {
      expect_wanted(meeting_);
      admit_all();
      return failure_ || all_here();
    };
    if (!sleep_until(is_over, deadline, kHostPause))
      fail_at_deadline("while it waited at port " + std::to_string(port_) + " for " + missing() +
                       strangers());
  } catch (const Error& error) {
    end(NoteKind::refusal, note_of(error), Deadline::after(kRefusalPatience));
    throw;
  }
  if (failure_) {
    const Deadline patience = Deadline::after(kRefusalPatience);
    end(NoteKind::failure, failure_->line(),
        std::ranges::max(deadline, patience, {}, &Deadline::at));
    failure_->fail();
  }
  std::vector<std::string> addresses;
  std::string list;
  for (const Guest& guest : guests_) {
    addresses.push_back(guest.line);
    list += guest.line + '\n';
  }
  for (Guest& guest : guests_)
    if (guest.channel.is_open()) (void)guest.channel.send(NoteKind::list, list, deadline);
  return addresses;
}

// Another meeting that has all ports now may be over soon, as may the last attempt of this job.
void MeetingHost::listen(Deadline deadline) {
  const auto listens = [this] {
    expect_wanted(meeting_);
    return try_to_listen();
  };
  if (sleep_until(listens, deadline, kRetryPause)) return;
  std::string ports = std::to_string(std::ranges::min(ports_));
  if (ports_.size() > 1) ports.append(" to ").append(std::to_string(std::ranges::max(ports_)));
  fail_system("rank 0 cannot listen at port " + ports, error_);
}

// With a problem, it does not know at which the others look for it.
bool MeetingHost::try_to_listen() {
  const auto listens = [this](int port) { return try_to_listen_at(port); };
  if (meeting_.problem.empty()) return std::ranges::any_of(ports_, listens);
  return std::ranges::count_if(ports_, listens) > 0;
}

// At all addresses or, if another process has one of them, at none: ranks would meet there, too.
bool MeetingHost::try_to_listen_at(int port) {
  std::vector<Socket> sockets;
  for (const Endpoint& endpoint : endpoints_) {
    Socket socket = listen_at(endpoint.at_port(port));
    if (!socket.is_open()) {
      error_ = errno;
      if (has_too_many_files(error_)) fail_for_files("a meeting cannot listen", error_);
      if (error_ != EADDRINUSE) continue;
      return false;
    }
    sockets.push_back(std::move(socket));
  }
  port_ = port;
  std::ranges::move(sockets, std::back_inserter(listening_));
  return !sockets.empty();
}

void MeetingHost::admit_all() {
  visitors_.accept_all();
  std::erase_if(visitors_.connections(),
                [this](AcceptedConnection& visitor) { return !admit(visitor); });
}

/// Reads what a visitor says. `ended` if it says nothing for too long; one that cannot prove what
/// it says is dismissed.
NoteReader::Outcome MeetingHost::read(AcceptedConnection& visitor) {
  const NoteReader::Outcome outcome = visitor.channel.read();
  if (outcome == NoteReader::Outcome::pending && visitor.is_late())
    return NoteReader::Outcome::ended;
  if (outcome == NoteReader::Outcome::ended && visitor.channel.has_met()) {
    if (visitor.channel.is_strangers()) ++sent_away_;
    visitor.channel.dismiss();
  }
  return outcome;
}

// False if the visitor is a guest now, or sent away.
bool MeetingHost::admit(AcceptedConnection& visitor) {
  const NoteReader::Outcome outcome = read(visitor);
  if (outcome != NoteReader::Outcome::complete) return outcome == NoteReader::Outcome::pending;
  if (visitor.channel.kind() != NoteKind::join) return false;
  int rank = 0;
  std::string line;
  const std::string why = refusal_of(visitor.channel.text(), rank, line);
  if (!why.empty()) {
    (void)visitor.channel.send(NoteKind::refusal, note_of(why, FailureKind::usage));
    return false;
  }
  if (!failure_) failure_ = RankFailure::parse(line);
  Guest& guest = guests_[static_cast<std::size_t>(rank)];
  guest = {.channel = std::move(visitor.channel), .line = std::move(line)};
  (void)guest.channel.send(NoteKind::welcome, {});
  return false;
}

/// 0 if it is none of another rank.
int MeetingHost::rank_of(std::string_view word) const {
  int rank = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), rank);
  const bool good = error == std::errc() && end == word.data() + word.size() && rank > 0 &&
                    rank < static_cast<int>(guests_.size());
  return good ? rank : 0;
}

/// Parses a join note into the rank and its line, which is an address or a failure. Returns why the
/// rank cannot join, a failure of kind `usage`, or nothing; only that rank receives the reason.
std::string MeetingHost::refusal_of(std::string_view join, int& rank, std::string& line) {
  const std::string word(cut(join, '\n'));
  rank = rank_of(word);
  if (rank == 0) return "a rank must be from 1 to " + std::to_string(guests_.size() - 1);
  line = cut(join, '\n');
  try {
    if (!RankFailure::parse(line)) (void)TcpAddress::parse(line);
  } catch (const UsageError& wrong) {
    return wrong.what();
  }
  Guest& guest = guests_[static_cast<std::size_t>(rank)];
  // One whose connection has ended may have been started again; one of this address is the same
  // process, which has come another way, too.
  if (guest.line.empty() || guest.line == line ||
      guest.channel.read() == NoteReader::Outcome::ended)
    return "";
  return "two processes say that they are rank " + word;
}

// One that has gone since will come again, if it lives.
bool MeetingHost::all_here() {
  bool all = true;
  for (Guest& guest : guests_) {
    if (guest.channel.is_open() && guest.channel.read() == NoteReader::Outcome::ended) guest = {};
    all = all && !guest.line.empty();
  }
  return all;
}

std::string MeetingHost::missing() const {
  std::string text;
  for (std::size_t rank = 0; rank < guests_.size(); ++rank) {
    if (guests_[rank].line.empty())
      text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank);
  }
  return text;
}

std::string MeetingHost::strangers() const {
  if (sent_away_ == 0) return "";
  return "; it sent away " + std::to_string(sent_away_) +
         " that came with another job's name, number of ranks or secret";
}

// Answers late ranks, too: the port stays open until all ranks know, or until `patience`.
void MeetingHost::end(NoteKind kind, std::string_view text, Deadline patience) noexcept {
  try {
    std::vector<bool> know(guests_.size());
    know.front() = true;
    for (std::size_t rank = 1; rank < guests_.size(); ++rank)
      if (guests_[rank].channel.is_open()) know[rank] = guests_[rank].channel.send(kind, text);
    const auto all_know = [&] {
      visitors_.accept_all();
      std::erase_if(visitors_.connections(), [&](AcceptedConnection& visitor) {
        const NoteReader::Outcome outcome = read(visitor);
        if (outcome != NoteReader::Outcome::complete) return outcome == NoteReader::Outcome::ended;
        std::string_view join = visitor.channel.text();
        const int rank = rank_of(cut(join, '\n'));
        if (visitor.channel.send(kind, text)) know[static_cast<std::size_t>(rank)] = true;
        return true;
      });
      return is_stopped(meeting_) || std::ranges::all_of(know, [](bool knows) { return knows; });
    };
    sleep_until(all_know, patience, kHostPause);
  } catch (...) {
    // They wait until their deadline.
  }
}

}  // namespace winnow::comm
