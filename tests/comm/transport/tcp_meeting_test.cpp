// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Ranks that meet at a port of rank 0; and ranks that are processes: killed ones, and forks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/tcp.hpp>

#include "comm/transport/tcp/endpoint.hpp"
#include "comm/transport/tcp/note.hpp"
#include "tests/harness/tcp_ranks.hpp"

namespace winnow {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::ThrowsMessage;

Deadline soon() {
  return Deadline::after(std::chrono::seconds(60));
}
Deadline briefly() {
  return Deadline::after(std::chrono::milliseconds(300));
}

comm::Socket listen_at_port(int port) {
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(static_cast<std::uint16_t>(port));
  return comm::listen_at({reinterpret_cast<const sockaddr*>(&any), sizeof any});
}

/// A port that was free a moment ago, and is none of those that the system gives to who names none.
int free_port() {
  static std::mt19937 numbers{std::random_device()()};
  for (;;) {
    const int port = std::uniform_int_distribution(20'000, 32'000)(numbers);
    if (listen_at_port(port).is_open()) return port;
  }
}

/// tcp_transport of each of `meetings` on a thread of its own; returns what each threw, or "".
std::vector<std::string> thrown_by_meeting(const std::vector<TcpMeeting>& meetings,
                                           Deadline deadline) {
  std::vector<std::string> texts(meetings.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < meetings.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        const auto transport = tcp_transport(meetings[i], deadline);
        EXPECT_EQ(transport->rank(), meetings[i].rank);
        EXPECT_EQ(transport->size(), meetings[i].size);
      } catch (const Error& error) {
        texts[i] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return texts;
}

TEST(TcpMeeting, RanksMeetInAnyOrder) {
  for (const char* host : {"localhost", "127.0.0.1", "::1"}) {
    const int port = free_port();
    std::vector<TcpMeeting> meetings;
    for (const int rank : {2, 0, 3, 1})
      meetings.push_back({.host = host, .port = port, .rank = rank, .size = 4, .job = "a b"});
    EXPECT_THAT(thrown_by_meeting(meetings, soon()), Each("")) << host;
  }
}

TEST(TcpMeeting, OneRankNeedsNoPort) {
  EXPECT_EQ(tcp_transport({.host = "nowhere.invalid"}, soon())->size(), 1);
}

// An error on all that come, at once: none of them has a deadline.
TEST(TcpMeeting, RanksThatDifferAreAnErrorOnAll) {
  const auto meeting = [port = free_port()](int rank, int size) {
    return TcpMeeting{.host = "localhost", .port = port, .rank = rank, .size = size, .job = {}};
  };
  EXPECT_THAT(thrown_by_meeting({meeting(0, 3), meeting(1, 3), meeting(2, 4)}, Deadline::never()),
              Each(HasSubstr("rank 2 says that there are 4 ranks, rank 0 3")));
  EXPECT_THAT(thrown_by_meeting({meeting(0, 3), meeting(1, 3), meeting(1, 3)}, Deadline::never()),
              Each(HasSubstr("two processes say that they are rank 1")));
}

TEST(TcpMeeting, MissingRanksAreNamedAtTheDeadline) {
  const int port = free_port();
  EXPECT_THAT(
      [&] {
        (void)tcp_transport({.host = "localhost", .port = port, .rank = 0, .size = 3}, briefly());
      },
      ThrowsMessage<CommError>(AllOf(HasSubstr("deadline"), HasSubstr("rank 1, rank 2"),
                                     HasSubstr(std::to_string(port)))));
  EXPECT_THAT(
      [&] {
        (void)tcp_transport({.host = "localhost", .port = port, .rank = 1, .size = 3}, briefly());
      },
      ThrowsMessage<CommError>(AllOf(HasSubstr("deadline"), HasSubstr("rank 0 at localhost"))));
}

// The other job's rank 1 does not take this one's place, and goes on looking for its own.
TEST(TcpMeeting, AnotherJobIsSentAway) {
  const int port = free_port();
  std::thread other([&] {
    EXPECT_THAT(
        [&] {
          (void)tcp_transport(
              {.host = "localhost", .port = port, .rank = 1, .size = 2, .job = "other"},
              Deadline::after(std::chrono::seconds(1)));
        },
        ThrowsMessage<CommError>(HasSubstr("deadline")));
  });
  std::vector<TcpMeeting> meetings;
  for (const int rank : {0, 1})
    meetings.push_back({.host = "localhost", .port = port, .rank = rank, .size = 2, .job = "this"});
  EXPECT_THAT(thrown_by_meeting(meetings, soon()), Each(""));
  other.join();
}

// Another program listened at the port, and keeps the connection that it accepted.
TEST(TcpMeeting, AStrangerThatSaysNothingIsLeft) {
  const TcpMeeting first{.host = "127.0.0.1", .port = free_port(), .rank = 0, .size = 2, .job = {}};
  TcpMeeting second = first;
  second.rank = 1;
  comm::Socket stranger = listen_at_port(first.port), kept;
  std::thread joins([&] { EXPECT_THAT(thrown_by_meeting({second}, soon()), Each("")); });
  while (!(kept = comm::accept_from(stranger)).is_open()) std::this_thread::yield();
  stranger.close();
  EXPECT_THAT(thrown_by_meeting({first}, soon()), Each(""));
  joins.join();
}

// It comes again, as one does that rank 0 has kept waiting.
TEST(TcpMeeting, ARankThatJoinedAndLeftIsWaitedFor) {
  const TcpMeeting first{.host = "127.0.0.1", .port = free_port(), .rank = 0, .size = 2, .job = {}};
  TcpMeeting second = first;
  second.rank = 1;
  std::thread hosts([&] { EXPECT_THAT(thrown_by_meeting({first}, soon()), Each("")); });
  const comm::Endpoint there = comm::resolve(first.host, first.port).front();
  for (bool joined = false; !joined; std::this_thread::yield()) {
    const comm::Socket leaves = comm::connect_to(there);
    while (comm::is_connecting(leaves, there)) std::this_thread::yield();
    const int on = 1;  // the join and the end arrive together
    ::setsockopt(leaves.get(), IPPROTO_TCP, TCP_CORK, &on, sizeof on);
    joined = comm::send_note(leaves, comm::NoteKind::join, "\n1\n2\nnowhere");
    ::shutdown(leaves.get(), SHUT_WR);
    while (comm::look_ahead(leaves) == comm::NoteAhead::none) std::this_thread::yield();
  }
  EXPECT_THAT(thrown_by_meeting({second}, soon()), Each(""));
  hosts.join();
}

TEST(TcpMeeting, ChecksItsArguments) {
  const auto refuses = [](const TcpMeeting& meeting, const char* why) {
    EXPECT_THAT([&] { (void)tcp_transport(meeting, briefly()); },
                ThrowsMessage<UsageError>(HasSubstr(why)));
  };
  refuses({.host = "localhost", .rank = 2, .size = 2}, "rank 2 of 2");
  refuses({.host = "localhost", .rank = -1, .size = 2}, "rank -1 of 2");
  refuses({.host = "localhost", .rank = 0, .size = 0}, "rank 0 of 0");
  refuses({.host = "localhost", .port = 0, .size = 2}, "port 0");
  refuses({.host = "localhost", .port = 65536, .size = 2}, "port 65536");
  refuses({.host = "localhost", .size = 2, .job = "a\nb"}, "one line");
}

TEST(TcpMeeting, ReadsTheEnvironmentOfTorchrun) {
  ::setenv("MASTER_ADDR", "node-3", 1);
  ::setenv("RANK", "5", 1);
  ::setenv("WORLD_SIZE", "8", 1);
  ::setenv("WINNOW_TCP_PORT", "4711", 1);
  ::setenv("TORCHELASTIC_RUN_ID", "run", 1);
  const TcpMeeting meeting = TcpMeeting::from_environment();
  EXPECT_EQ(meeting.host, "node-3");
  EXPECT_EQ(meeting.rank, 5);
  EXPECT_EQ(meeting.size, 8);
  EXPECT_EQ(meeting.port, 4711);
  EXPECT_EQ(meeting.job, "run");
  ::unsetenv("WINNOW_TCP_PORT");
  EXPECT_EQ(TcpMeeting::from_environment().port, TcpMeeting::kDefaultPort);
  ::setenv("RANK", "5x", 1);
  EXPECT_THAT([] { (void)TcpMeeting::from_environment(); },
              ThrowsMessage<UsageError>(HasSubstr("RANK='5x'")));
  ::unsetenv("RANK");
  EXPECT_THAT([] { (void)TcpMeeting::from_environment(); },
              ThrowsMessage<UsageError>(HasSubstr("RANK=''")));
  ::unsetenv("MASTER_ADDR");
  EXPECT_THAT([] { (void)TcpMeeting::from_environment(); },
              ThrowsMessage<UsageError>(HasSubstr("MASTER_ADDR")));
  ::unsetenv("WORLD_SIZE");
  ::unsetenv("TORCHELASTIC_RUN_ID");
}

using Body = std::function<bool(Transport& transport)>;

/// Runs `body` in `ranks` child processes, each a rank; returns their wait statuses.
std::vector<int> statuses_of_processes(int ranks, const Body& body) {
  const int port = free_port();
  std::vector<int> statuses;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = ::fork();
    if (child != 0) {
      statuses.push_back(child);
      continue;
    }
    ::alarm(60);
    bool worked = false;
    try {
      const auto transport =
          tcp_transport({.host = "localhost", .port = port, .rank = rank, .size = ranks}, soon());
      worked = body(*transport);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    }
    ::_exit(worked ? 0 : 1);
  }
  for (int& status : statuses) ::waitpid(status, &status, 0);
  return statuses;
}

/// All ranks meet; rank 2 returns last.
void meet(Transport& transport) {
  std::vector<std::byte> all(static_cast<std::size_t>(transport.size()));
  const std::byte mine{1};
  transport.all_gather({}, {&mine, 1}, all, soon());
  std::byte word{};
  if (transport.rank() != 2 && transport.size() > 2) transport.send({&word, 1}, 2);
  for (int peer = 0; transport.rank() == 2 && peer < 2; ++peer)
    transport.recv({&word, 1}, peer, nullptr);
  transport.wait(transport.start({}), soon());
}

/// Whether a wait for another survivor, without a deadline, ends since rank 2 is gone.
bool learns_of_death(Transport& transport) {
  std::byte word{};
  transport.recv({&word, 1}, 1 - transport.rank(), nullptr);
  try {
    transport.wait(transport.start({}), Deadline::never());
  } catch (const CommError& error) {
    return std::string_view(error.what()).find("rank 2 is gone") != std::string_view::npos;
  }
  return false;
}

TEST(TcpProcesses, AKilledRankIsAnErrorOnAllOthers) {
  const auto statuses = statuses_of_processes(3, [](Transport& transport) {
    meet(transport);
    if (transport.rank() == 2) ::raise(SIGKILL);
    return learns_of_death(transport);
  });
  EXPECT_EQ(statuses, (std::vector{0, 0, SIGKILL}));
}

// As a data loader that a trainer forked: its copies of the connections would hide the death.
TEST(TcpProcesses, AKilledRanksChildDoesNotHideItsDeath) {
  std::array<int, 2> ends{};  // the child lives until nobody can write
  ASSERT_EQ(::pipe(ends.data()), 0);
  const auto statuses = statuses_of_processes(3, [&](Transport& transport) {
    meet(transport);
    if (transport.rank() != 2) return learns_of_death(transport);
    if (::fork() == 0) {
      ::alarm(60);
      ::close(ends[1]);
      char nothing = 0;
      ::_exit(static_cast<int>(::read(ends[0], &nothing, 1)));
    }
    ::raise(SIGKILL);
    return false;
  });
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_EQ(statuses, (std::vector{0, 0, SIGKILL}));
}

// A child may destroy what it has copies of, and cannot use it; its parent goes on.
TEST(TcpProcesses, AForkNeitherUsesNorEndsConnections) {
  const auto statuses = statuses_of_processes(2, [](Transport& transport) {
    meet(transport);
    auto inner = tests::tcp_transports(1);
    const pid_t child = ::fork();
    if (child == 0) {
      inner.clear();
      bool refused = false;
      try {
        std::byte word{};
        transport.send({&word, 1}, 1 - transport.rank());
        transport.wait(transport.start({}), briefly());
      } catch (const UsageError&) {
        refused = true;
      }
      transport.abort("by a child");
      transport.~Transport();
      ::_exit(refused ? 0 : 1);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    meet(transport);
    return status == 0;
  });
  EXPECT_EQ(statuses, (std::vector{0, 0}));
}

}  // namespace
}  // namespace winnow
