// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp/meeting.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/tcp.hpp>

#include "comm/transport/tcp/environment.hpp"
#include "comm/transport/tcp/job.hpp"
#include "comm/transport/tcp/meeting_guest.hpp"
#include "comm/transport/tcp/meeting_host.hpp"
#include "comm/transport/tcp/mesh.hpp"
#include "comm/transport/tcp/port_range.hpp"
#include "comm/transport/tcp/rank_failure.hpp"
#include "comm/transport/tcp/tcp.hpp"
#include "kernels/exec/uncaught.hpp"

namespace winnow {
namespace {

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
  const char* const job = std::getenv("WINNOW_TCP_JOB");
  meeting.job = job != nullptr ? job : comm::job_of_launcher();
  return meeting;
}

namespace comm {
namespace {

void expect_meeting(const TcpMeeting& meeting) {
  const auto says = [](int number) { return std::to_string(number); };
  WINNOW_EXPECTS(meeting.size >= 1 && meeting.rank >= 0 && meeting.rank < meeting.size,
                 "rank " + says(meeting.rank) + " of " + says(meeting.size) +
                     ": must be from 0 to one less than the size");
  constexpr int kMostRanks = 1 << 16;  // a process has fewer sockets
  WINNOW_EXPECTS(meeting.size <= kMostRanks,
                 "size " + says(meeting.size) + ": must be at most " + says(kMostRanks));
  WINNOW_EXPECTS(meeting.port >= 0 && meeting.port < (1 << 16),
                 "port " + says(meeting.port) + ": must be from 1 to 65535, or 0 for the default");
  WINNOW_EXPECTS(meeting.job.find('\n') == std::string::npos, "a job's name must be one line");
}

/// The port that ranks leave to the meeting, on all hosts alike; 0: none. Those by default are so
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
  expect_meeting(meeting);
  TcpMeeting named = meeting;
  if (named.job.empty()) named.job = job_of_launcher();
  (void)credentials_of(named, options);  // throws here alone: others would believe nothing
  TcpSettings settings{.options = std::move(options), .reach = reach_of(meeting.host)};
  TcpPorts ports;
  try {
    read(settings.options);
    settings.meeting_port = port_to_leave(named, settings.options);
    ports = open_ports(settings);
  } catch (const Error& error) {
    const RankFailure failure = RankFailure::of(meeting.rank, error);
    try {
      (void)meet(named, settings.options, failure.line(), deadline);
    } catch (const Error&) {  // the others know, or cannot be reached
    }
    failure.fail();
  }
  const std::vector<std::string> addresses =
      meet(named, settings.options, ports.address.text(), deadline);
  return tcp_transport_at(std::move(ports), meeting.rank, addresses, settings, deadline);
}

}  // namespace comm

std::unique_ptr<Transport> tcp_transport(const TcpMeeting& meeting, Deadline deadline) {
  return comm::tcp_transport_by(meeting, deadline, {.secret = comm::secret_of_environment()},
                                comm::read_environment);
}

std::unique_ptr<Transport> tcp_transport(const TcpMeeting& meeting, Deadline deadline,
                                         const TcpOptions& options) {
  return comm::tcp_transport_by(meeting, deadline, options, [](TcpOptions&) {});
}

}  // namespace winnow
