// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp/meeting.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/tcp.hpp>

#include "comm/transport/printable.hpp"
#include "comm/transport/tcp/environment.hpp"
#include "comm/transport/tcp/job.hpp"
#include "comm/transport/tcp/meeting_guest.hpp"
#include "comm/transport/tcp/meeting_host.hpp"
#include "comm/transport/tcp/mesh.hpp"
#include "comm/transport/tcp/port_range.hpp"
#include "comm/transport/tcp/rank_failure.hpp"
#include "comm/transport/tcp/tcp.hpp"
#include "kernels/exec/uncaught.hpp"
#include "topology/words.hpp"

namespace winnow {
namespace {

/// Whether all of the word is a number.
bool read_integer(std::string_view word, int& number) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size();
}

/// The environment's number of that name.
int number_of(const char* name, const char* text) {
  const std::string_view word = text == nullptr ? "" : text;
  int number = 0;
  WINNOW_EXPECTS(read_integer(word, number), std::string(name) + "='" + std::string(word) +
                                                 "': must be a number, as torchrun sets it");
  return number;
}

bool is_port(int number) {
  return number >= 0 && number < (1 << 16);
}

/// Sets the port or, if it is wrong, the problem, and the port that is probably meant.
void read_port(std::string_view text, TcpMeeting& meeting) {
  int port = 0;
  if (!read_integer(text, port) || !is_port(port)) {
    meeting.problem = "WINNOW_TCP_PORT='" + std::string(text) +
                      "': must be a number from 1 to 65535, or 0 for the default";
    if (!read_integer(without_blanks(text, {}), port) || !is_port(port)) port = 0;
  }
  meeting.port = port;
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
  if (const char* const port = std::getenv("WINNOW_TCP_PORT")) read_port(port, meeting);
  const char* const job = std::getenv("WINNOW_TCP_JOB");
  meeting.job = job != nullptr ? job : comm::job_of_launcher();
  return meeting;
}

namespace comm {
namespace {

constexpr std::size_t kMostShown = 200;              // characters of a wrong name in an error
constexpr std::chrono::seconds kProblemPatience{5};  // where the others may not be

void expect_rank(const TcpMeeting& meeting) {
  const auto says = [](int number) { return std::to_string(number); };
  WINNOW_EXPECTS(meeting.size >= 1 && meeting.rank >= 0 && meeting.rank < meeting.size,
                 "rank " + says(meeting.rank) + " of " + says(meeting.size) +
                     ": must be from 0 to one less than the size");
  constexpr int kMostRanks = 1 << 16;  // a process has fewer sockets
  WINNOW_EXPECTS(meeting.size <= kMostRanks,
                 "size " + says(meeting.size) + ": must be at most " + says(kMostRanks));
}

/// One at which this rank may find the others, with a problem if its own is wrong.
TcpMeeting usable(TcpMeeting meeting) {
  const auto note = [&](const std::string& problem) {
    if (meeting.problem.empty()) meeting.problem = problem;
  };
  if (!is_port(meeting.port)) {
    note("port " + std::to_string(meeting.port) +
         ": must be from 1 to 65535, or 0 for the default");
    meeting.port = 0;
  }
  if (const auto end = meeting.job.find('\n'); end != std::string::npos) {
    note("WINNOW_TCP_JOB or TcpMeeting::job '" + printable(meeting.job.substr(0, kMostShown)) +
         "': a job's name must be one line");
    meeting.job.resize(end);
  }
  if (meeting.job.empty()) meeting.job = job_of_launcher();
  return meeting;
}

/// The port that ranks leave to the meeting, on all hosts alike; 0: none. The default ports are so
/// many that a smaller range leaves one.
int port_to_leave(const TcpMeeting& meeting, const TcpOptions& options) {
  if (meeting.size == 1) return 0;
  const std::vector<int> ports = ports_of(meeting, credentials_of(meeting, options));
  const PortRange range = PortRange::parse(options.ports);
  const auto is_in_range = [&](int port) { return port >= range.first && port <= range.last; };
  return std::ranges::all_of(ports, is_in_range) ? ports.front() : 0;
}

/// All ranks' addresses, by rank. `line`: this one's, or its RankFailure's.
std::vector<std::string> meet(const TcpMeeting& meeting, const TcpOptions& options,
                              const std::string& line, Deadline deadline) {
  if (meeting.size == 1) return {line};
  return meeting.rank == 0 ? MeetingHost(meeting, options, line).collect(deadline)
                           : MeetingGuest(meeting, options, line).collect(deadline);
}

}  // namespace

std::unique_ptr<Transport> tcp_transport_by(const TcpMeeting& meeting, Deadline deadline,
                                            TcpOptions options, const ReadOptions& read) {
  kernels::note_rank(meeting.rank);
  expect_rank(meeting);
  const TcpMeeting found = usable(meeting);
  // Throws here alone: others would believe nothing.
  named_by_rank(found.rank, [&] { (void)credentials_of(found, options); });
  TcpSettings settings{.options = std::move(options), .reach = reach_of(meeting.host)};
  TcpPorts ports;
  try {
    read(settings.options);
    WINNOW_EXPECTS(found.problem.empty(), found.problem);
    settings.meeting_port = port_to_leave(found, settings.options);
    ports = open_ports(settings);
  } catch (const Error& error) {
    const RankFailure failure = RankFailure::of(meeting.rank, error);
    if (!found.problem.empty())
      deadline = std::ranges::min(deadline, Deadline::after(kProblemPatience), {}, &Deadline::at);
    try {
      (void)meet(found, settings.options, failure.line(), deadline);
    } catch (const Error&) {  // the others know, or cannot be reached
    }
    failure.fail();
  }
  const std::vector<std::string> addresses =
      meet(found, settings.options, ports.address.text(), deadline);
  return tcp_transport_at(std::move(ports), meeting.rank, addresses, settings, deadline);
}

}  // namespace comm

std::unique_ptr<Transport> tcp_transport(const TcpMeeting& meeting, Deadline deadline) {
  const std::string secret = comm::named_by_rank(meeting.rank, comm::secret_of_environment);
  return comm::tcp_transport_by(meeting, deadline, {.secret = secret}, comm::read_environment);
}

std::unique_ptr<Transport> tcp_transport(const TcpMeeting& meeting, Deadline deadline,
                                         const TcpOptions& options) {
  return comm::tcp_transport_by(meeting, deadline, options, [](TcpOptions&) {});
}

}  // namespace winnow
