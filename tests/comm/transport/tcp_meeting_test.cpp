// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Ranks that meet at a port of rank 0; and ranks that are processes: killed ones, and forks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/tcp.hpp>

#include "comm/transport/tcp/endpoint.hpp"
#include "comm/transport/tcp/meeting_host.hpp"
#include "comm/transport/tcp/note_channel.hpp"
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
  for (const char* host : {"localhost", "127.0.0.1", "::1", "[::1]", "127.0.1.1"}) {
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

/// The sum of what all ranks add.
int sum_over(Transport& transport, int summand) {
  std::vector<int> all(static_cast<std::size_t>(transport.size()));
  transport.all_gather({}, std::as_bytes(std::span(&summand, 1)),
                       std::as_writable_bytes(std::span(all)), soon());
  return std::accumulate(all.begin(), all.end(), 0);
}

/// The sum of what the ranks of a meeting add, or what was thrown.
std::string sum_of_meeting(const TcpMeeting& meeting, int summand, const TcpOptions& options = {}) {
  try {
    return std::to_string(sum_over(*tcp_transport(meeting, soon(), options), summand));
  } catch (const Error& error) {
    return error.what();
  }
}

/// Of a job of `ranks` ranks, by rank.
std::vector<std::string> sums_of_job(const TcpMeeting& job, int summand,
                                     const std::vector<TcpOptions>& options) {
  std::vector<std::string> sums(options.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < options.size(); ++rank) {
    threads.emplace_back([&, rank] {
      TcpMeeting meeting = job;
      meeting.rank = static_cast<int>(rank);
      meeting.size = static_cast<int>(options.size());
      sums[rank] = sum_of_meeting(meeting, summand, options[rank]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return sums;
}

// At the ports that all jobs have by default, and at one port in turn.
TEST(TcpMeeting, JobsOfOneHostStayApart) {
  struct Jobs {
    TcpMeeting first, second;
    std::size_t first_ranks, second_ranks;
    std::string first_secret, second_secret;
  };
  const auto job = [](int port, const char* name) {
    return TcpMeeting{.host = "localhost", .port = port, .job = name};
  };
  for (int round = 0; round < 3; ++round) {
    for (const int port : {0, free_port()}) {
      for (const Jobs& jobs : {Jobs{job(port, "a"), job(port, "b"), 2, 2, "", ""},
                               Jobs{job(port, "a"), job(port, "a"), 2, 3, "", ""},
                               Jobs{job(port, "a"), job(port, "a"), 2, 2, "", "secret"},
                               Jobs{job(port, "a"), job(port, "a"), 3, 2, "one", "another"}}) {
        std::vector<std::string> first, second;
        std::thread other([&] {
          second = sums_of_job(
              jobs.second, 100,
              std::vector<TcpOptions>(jobs.second_ranks, {.secret = jobs.second_secret}));
        });
        first =
            sums_of_job(jobs.first, 1,
                        std::vector<TcpOptions>(jobs.first_ranks, {.secret = jobs.first_secret}));
        other.join();
        EXPECT_THAT(first, Each(std::to_string(jobs.first_ranks)));
        EXPECT_THAT(second, Each(std::to_string(100 * jobs.second_ranks)));
      }
    }
  }
}

/// Whether something listens at a port of `host`.
bool listens_at(const char* host, int port) {
  const comm::Endpoint there = comm::resolve(host, port).front();
  const comm::Socket socket = comm::connect_to(there);
  if (!socket.is_open()) return false;
  while (comm::is_connecting(socket, there)) std::this_thread::yield();
  return errno == 0;
}

// Of another size, or with another secret or none: the job goes on without it, and it goes on
// looking for its own.
TEST(TcpMeeting, WhoDiffersIsSentAway) {
  struct Stranger {
    int rank, size;
    const char* secret;
    const char* job;
  };
  for (const Stranger& stranger : {Stranger{1, 3, "right", "j"}, Stranger{1, 2, "wrong", "j"},
                                   Stranger{1, 2, "", "j"}, Stranger{1, 2, "right", "k"}}) {
    const TcpOptions right{.interfaces = "", .secret = "right"};
    const TcpMeeting first{.host = "127.0.0.1", .port = free_port(), .size = 2, .job = "j"};
    TcpMeeting second = first, visitor = first;
    second.rank = 1;
    visitor.rank = stranger.rank;
    visitor.size = stranger.size;
    visitor.job = stranger.job;
    std::string sum, thrown;
    std::thread hosts([&] { sum = sum_of_meeting(first, 1, right); });
    while (!listens_at("127.0.0.1", first.port)) std::this_thread::yield();
    try {
      (void)tcp_transport(visitor, Deadline::after(std::chrono::milliseconds(700)),
                          {.interfaces = "", .secret = stranger.secret});
    } catch (const CommError& error) {
      thrown = error.what();
    }
    EXPECT_EQ(sum_of_meeting(second, 1, right), "2");
    hosts.join();
    EXPECT_EQ(sum, "2");
    EXPECT_THAT(thrown, AllOf(HasSubstr("deadline"), HasSubstr("another secret, meets there")));
  }
}

// The first of two goes on, and the second learns of it at once: it has no deadline.
TEST(TcpMeeting, ASecondProcessOfARankIsRefused) {
  for (const char* secret : {"", "of the job"}) {
    const TcpOptions options{.secret = secret};
    const TcpMeeting job{.host = "localhost", .port = free_port(), .size = 3, .job = "j"};
    TcpMeeting one = job, two = job;
    one.rank = 1;
    two.rank = 2;
    std::vector<std::string> said(4);
    std::thread host([&] { said[0] = sum_of_meeting(job, 1, options); });
    std::vector<std::thread> both;
    std::atomic<int> refused = 0;
    for (std::size_t i = 1; i <= 2; ++i) {
      both.emplace_back([&, i] {
        try {
          const auto transport = tcp_transport(one, Deadline::never(), options);
          said[i] = std::to_string(sum_over(*transport, 1));
        } catch (const CommError& error) {
          said[i] = error.what();
          ++refused;
        }
      });
    }
    while (refused == 0) std::this_thread::yield();
    said[3] = sum_of_meeting(two, 1, options);
    host.join();
    for (std::thread& thread : both) thread.join();
    EXPECT_EQ(said[0], "3");
    EXPECT_EQ(said[3], "3");
    if (said[1] != "3") std::swap(said[1], said[2]);
    EXPECT_EQ(said[1], "3");
    EXPECT_THAT(said[2], HasSubstr("two processes say that they are rank 1"));
  }
}

/// What a stranger may send to a meeting: joins as a rank would, but for the proof.
std::vector<std::pair<comm::NoteKind, std::string>> notes_of_strangers() {
  using comm::NoteKind;
  const std::string proof(32, '\1');
  const std::string address = TcpListener({.interfaces = "lo"}).address();
  std::vector<std::pair<NoteKind, std::string>> notes;
  for (const std::string& join :
       {std::string(), std::string(16, '\0'), std::string("j\n1\n2\n") + address,
        std::string("1\n") + address + "\n", "-1\n" + address, "99\n" + address, "0\n" + address,
        std::string("1\n"), std::string("1\nnowhere\n"), std::string(70000, 'x')}) {
    for (const NoteKind kind : {NoteKind::join, NoteKind::list, NoteKind::refusal,
                                NoteKind::welcome, NoteKind::abort, NoteKind::hello}) {
      notes.emplace_back(kind, join);
      notes.emplace_back(kind, proof + join);
    }
  }
  return notes;
}

// They neither learn the job's name, nor join, nor end it.
TEST(TcpMeeting, StrangersAreDropped) {
  for (const char* secret : {"", "of the job"}) {
    const TcpMeeting first{.host = "127.0.0.1", .port = free_port(), .size = 2, .job = "the job's"};
    TcpMeeting second = first;
    second.rank = 1;
    std::string sum;
    std::thread hosts([&] { sum = sum_of_meeting(first, 1, {.secret = secret}); });
    const comm::Endpoint there = comm::resolve(first.host, first.port).front();
    std::string heard;
    for (const auto& [kind, text] : notes_of_strangers()) {
      for (const bool greets : {false, true}) {
        comm::Socket stranger;
        do {
          stranger = comm::connect_to(there);
          while (comm::is_connecting(stranger, there)) std::this_thread::yield();
        } while (errno != 0);
        std::string hello(20, 'n');
        hello.replace(0, 4, std::string("\2\0\0\0", 4));
        const comm::Connection connection(std::move(stranger));
        if (greets) (void)comm::send_note(connection, comm::NoteKind::hello, hello);
        (void)comm::send_note(connection, kind, text, briefly());
        ::shutdown(connection.socket().get(), SHUT_WR);
        std::array<char, 4096> bytes{};
        ::ssize_t got = 0;
        for (;;) {
          got = ::recv(connection.socket().get(), bytes.data(), bytes.size(), 0);
          if (got < 0 && errno == EAGAIN) {
            std::this_thread::yield();
            continue;
          }
          if (got <= 0) break;
          heard.append(bytes.data(), static_cast<std::size_t>(got));
        }
      }
    }
    EXPECT_THAT(heard, testing::Not(HasSubstr("the job")));
    EXPECT_EQ(sum_of_meeting(second, 1, {.secret = secret}), "2");
    hosts.join();
    EXPECT_EQ(sum, "2");
  }
}

// Programs listen at all of the ports of loopback where rank 0 would but one, and say nothing, or a
// note that no rank sends.
TEST(TcpMeeting, SquattersDoNotHoldTheJob) {
  std::vector<comm::Socket> squatters;
  std::vector<comm::Connection> kept;
  for (int i = 0; i + 1 < TcpMeeting::kPorts; ++i)
    squatters.push_back(listen_at_port(TcpMeeting::kDefaultPort + i));
  std::atomic<bool> done = false;
  std::thread answers([&] {
    while (!done) {
      for (const comm::Socket& squatter : squatters) {
        comm::Connection visitor(squatter.is_open() ? comm::accept_from(squatter) : comm::Socket());
        if (!visitor.is_open()) continue;
        std::string hello(20, 's');
        hello.replace(0, 4, std::string("\2\0\0\0", 4));
        if (kept.size() % 3 == 1) (void)comm::send_note(visitor, comm::NoteKind::list, "x\ny\n");
        if (kept.size() % 3 == 2) (void)comm::send_note(visitor, comm::NoteKind::hello, hello);
        kept.push_back(std::move(visitor));
      }
      std::this_thread::yield();
    }
  });
  const TcpMeeting job{.host = "127.0.0.1", .job = "squatted"};
  EXPECT_THAT(sums_of_job(job, 1, std::vector<TcpOptions>(2)), Each("2"));
  done = true;
  answers.join();
}

/// Runs a job of two ranks whose listeners take these ports; returns each rank's sum or error.
std::vector<std::string> sums_at_ports(const TcpMeeting& job, const std::string& ports) {
  return sums_of_job(job, 1, std::vector<TcpOptions>(2, {.ports = ports}));
}

// Else they would take it before rank 0 does, and never meet.
TEST(TcpMeeting, RanksLeaveItsPortToIt) {
  const int port = free_port();
  for (const int first : {port, port - 1, port - 2}) {
    const std::string ports = std::to_string(first) + "-" + std::to_string(first + 2);
    EXPECT_THAT(sums_at_ports({.host = "localhost", .port = port, .job = "leaves"}, ports),
                Each("2"))
        << first - port;
  }
  const std::string alone = std::to_string(port) + "-" + std::to_string(port);
  EXPECT_THAT(sums_at_ports({.host = "localhost", .port = port, .job = "leaves"}, alone),
              Each(AllOf(HasSubstr("WINNOW_TCP_PORTS has only the port at which ranks meet"),
                         HasSubstr(std::to_string(port)))));
}

// The meeting has 16 default ports. Here other programs hold all but two of them: one for the
// meeting, one for the listener of one rank, while the other rank's listens by IPv6.
TEST(TcpMeeting, RanksLeaveItOneOfItsPortsByDefault) {
  const auto is_ipv6 = [](const comm::Endpoint& one) { return one.family() == AF_INET6; };
  if (std::ranges::none_of(comm::local_endpoints("", comm::Reach::machine), is_ipv6))
    GTEST_SKIP() << "no loopback address of IPv6";
  const TcpMeeting job{.host = "127.0.0.1", .size = 2, .job = "leaves one"};
  const int left = comm::ports_of(job, comm::credentials_of(job, {})).front();
  const int other = left == TcpMeeting::kDefaultPort ? left + 1 : TcpMeeting::kDefaultPort;
  std::vector<comm::Socket> taken;
  for (int port = TcpMeeting::kDefaultPort; port < TcpMeeting::kDefaultPort + TcpMeeting::kPorts;
       ++port)
    if (port != left && port != other) taken.push_back(listen_at_port(port));
  EXPECT_THAT(sums_at_ports(job, "29555-29570"), Each("2"));
}

/// An address of this machine that is not loopback's, or "" if there is none.
std::string address_of_network() {
  for (const comm::Endpoint& endpoint : comm::local_endpoints(""))
    if (!endpoint.is_local() && endpoint.family() == AF_INET)
      return endpoint.text().substr(0, endpoint.text().rfind(':'));
  return "";
}

TEST(TcpMeeting, ListensWhereItMayAlone) {
  const std::string network = address_of_network();
  if (network.empty()) GTEST_SKIP() << "this machine has no network";
  struct Case {
    std::string host;
    const char* interfaces;
    bool beyond;
  };
  for (const Case& c : {Case{"localhost", "", false}, Case{"127.0.0.1", "", false},
                        Case{network, "", true}, Case{network, "lo", false}}) {
    const TcpMeeting meeting{.host = c.host, .port = free_port(), .size = 2, .job = "j"};
    std::thread hosts([&] {
      try {
        (void)tcp_transport(meeting, Deadline::after(std::chrono::milliseconds(500)),
                            {.interfaces = c.interfaces, .secret = "of the job"});
      } catch (const CommError&) {  // nobody comes
      }
    });
    while (!listens_at("127.0.0.1", meeting.port)) std::this_thread::yield();
    EXPECT_EQ(listens_at(network.c_str(), meeting.port), c.beyond) << c.host << c.interfaces;
    hosts.join();
  }
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
      ThrowsMessage<CommError>(
          AllOf(HasSubstr("deadline"), HasSubstr("rank 0 at localhost"), HasSubstr("refused"))));
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
  const TcpMeeting first{.host = "127.0.0.1", .port = free_port(), .size = 2, .job = "j"};
  TcpMeeting second = first;
  second.rank = 1;
  std::thread hosts([&] { EXPECT_THAT(thrown_by_meeting({first}, soon()), Each("")); });
  const comm::Endpoint there = comm::resolve(first.host, first.port).front();
  for (bool joined = false; !joined; std::this_thread::yield()) {
    comm::Socket socket = comm::connect_to(there);
    while (comm::is_connecting(socket, there)) std::this_thread::yield();
    if (errno != 0) continue;
    comm::NoteChannel leaves(std::move(socket), comm::NoteChannel::End::connected,
                             comm::credentials_of(first, {}), 1024);
    (void)leaves.greet();
    while (!leaves.has_met()) (void)leaves.read();
    const std::string join = "1\n" + TcpListener({.interfaces = "lo"}).address() + "\n";
    const int on = 1;  // the join and the end arrive together
    ::setsockopt(leaves.socket().get(), IPPROTO_TCP, TCP_CORK, &on, sizeof on);
    joined = leaves.send(comm::NoteKind::join, join);
    ::shutdown(leaves.socket().get(), SHUT_WR);
    while (leaves.read() == comm::NoteReader::Outcome::pending) std::this_thread::yield();
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
  refuses({.host = "localhost", .port = -1, .size = 2}, "port -1");
  refuses({.host = "localhost", .port = 65536, .size = 2}, "port 65536");
  refuses({.host = "localhost", .size = 2, .job = "a\nb"}, "one line");
}

using Variables = std::vector<std::pair<const char*, const char*>>;

/// Sets variables of the environment as long as it lives.
class Environment {
 public:
  explicit Environment(Variables variables) : variables_(std::move(variables)) {
    for (const auto& [name, value] : variables_) ::setenv(name, value, 1);
  }
  ~Environment() {
    for (const auto& [name, value] : variables_) ::unsetenv(name);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  Variables variables_;
};

TEST(TcpMeeting, ReadsTheEnvironmentOfTorchrun) {
  const Environment torchrun({{"MASTER_ADDR", "node-3"},
                              {"RANK", "5"},
                              {"WORLD_SIZE", "8"},
                              {"WINNOW_TCP_PORT", "4711"},
                              {"TORCHELASTIC_RUN_ID", "run"}});
  const TcpMeeting meeting = TcpMeeting::from_environment();
  EXPECT_EQ(meeting.host, "node-3");
  EXPECT_EQ(meeting.rank, 5);
  EXPECT_EQ(meeting.size, 8);
  EXPECT_EQ(meeting.port, 4711);
  EXPECT_THAT(meeting.job, HasSubstr("run"));
  {
    const Environment named(Variables{{"WINNOW_TCP_JOB", "mine"}});
    EXPECT_EQ(TcpMeeting::from_environment().job, "mine");
  }
  ::unsetenv("WINNOW_TCP_PORT");
  EXPECT_EQ(TcpMeeting::from_environment().port, 0);
  ::setenv("RANK", "5x", 1);
  EXPECT_THAT([] { (void)TcpMeeting::from_environment(); },
              ThrowsMessage<UsageError>(HasSubstr("RANK='5x'")));
  ::unsetenv("RANK");
  EXPECT_THAT([] { (void)TcpMeeting::from_environment(); },
              ThrowsMessage<UsageError>(HasSubstr("RANK=''")));
  ::unsetenv("MASTER_ADDR");
  EXPECT_THAT([] { (void)TcpMeeting::from_environment(); },
              ThrowsMessage<UsageError>(HasSubstr("MASTER_ADDR")));
}

/// Meets with two ranks, of which one has a wrong variable; returns the error of each.
std::vector<std::string> thrown_by_ranks(int wrong, const Variables& right,
                                         const std::pair<const char*, const char*>& other) {
  std::vector<TcpMeeting> meetings;
  for (int rank = 0; rank < 2; ++rank) {
    Variables variables = right;
    const std::string number = std::to_string(rank);
    variables.emplace_back("MASTER_ADDR", "localhost");
    variables.emplace_back("WORLD_SIZE", "2");
    variables.emplace_back("RANK", number.c_str());
    if (rank == wrong) variables.push_back(other);
    const Environment environment(variables);
    meetings.push_back(TcpMeeting::from_environment());
  }
  return thrown_by_meeting(meetings, Deadline::after(std::chrono::seconds(20)));
}

// It goes where the others most likely are: to the number within the text, and to the ports that
// jobs have by default; with the first line of the name.
TEST(TcpMeeting, AWrongPortOrNameOfOneRankIsAnErrorOnAll) {
  const std::string far = std::to_string(free_port()), meant = ' ' + far;
  const std::string job = "wrong " + std::to_string(::getpid()), lines = job + "\nand more";
  struct Case {
    const char* port;  // of the other rank
    std::pair<const char*, const char*> wrong;
  };
  for (const int rank : {0, 1}) {
    const auto expect = [&](const Case& c) {
      Variables right{{"WINNOW_TCP_JOB", job.c_str()}};
      if (c.port != nullptr) right.emplace_back("WINNOW_TCP_PORT", c.port);
      EXPECT_THAT(
          thrown_by_ranks(rank, right, c.wrong),
          Each(AllOf(HasSubstr("rank " + std::to_string(rank) + ": "), HasSubstr(c.wrong.first))))
          << c.wrong.second;
    };
    for (const char* const port : {"abc", "-1", "65536", "", " 29556"}) {
      expect({nullptr, {"WINNOW_TCP_PORT", port}});
      expect({"29556", {"WINNOW_TCP_PORT", port}});
    }
    expect({far.c_str(), {"WINNOW_TCP_PORT", meant.c_str()}});
    expect({far.c_str(), {"WINNOW_TCP_JOB", lines.c_str()}});
  }
}

// It cannot know where they are.
TEST(TcpMeeting, ARankWithAWrongPortDoesNotLookForTheOthersForLong) {
  const auto refuses = [](const TcpMeeting& meeting, const char* why) {
    EXPECT_THAT(thrown_by_meeting({meeting}, Deadline::never()), Each(HasSubstr(why)));
  };
  refuses({.host = "localhost", .port = 65536, .rank = 1, .size = 2, .job = "nobody's"},
          "rank 1: port 65536");
}

// What launchers say tells two jobs of a host apart.
TEST(TcpMeeting, JobsOfDifferentLaunchesHaveDifferentNames) {
  const Environment rank(Variables{{"MASTER_ADDR", "node-3"}, {"RANK", "0"}, {"WORLD_SIZE", "2"}});
  const auto name = [](const Variables& variables) {
    const Environment launcher(variables);
    return TcpMeeting::from_environment().job;
  };
  const Variables torchrun{{"TORCHELASTIC_RUN_ID", "none"},
                           {"MASTER_PORT", "1"},
                           {"TORCHELASTIC_RESTART_COUNT", "0"},
                           {"SLURM_JOB_ID", "1"},
                           {"SLURM_STEP_ID", "0"}};
  const auto but = [](Variables variables, const char* changed, const char* value) {
    std::erase_if(variables, [&](const auto& v) { return std::string_view(v.first) == changed; });
    variables.emplace_back(changed, value);
    return variables;
  };
  for (const char* variable :
       {"TORCHELASTIC_RUN_ID", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "SLURM_JOB_ID"})
    EXPECT_NE(name(torchrun), name(but(torchrun, variable, "7"))) << variable;
  // Of agents on several nodes, which may have restarted differently often, each in its own step.
  const Variables several = but(torchrun, "GROUP_WORLD_SIZE", "2");
  EXPECT_EQ(name(several), name(but(several, "TORCHELASTIC_RESTART_COUNT", "1")));
  EXPECT_EQ(name(several), name(but(several, "SLURM_STEP_ID", "1")));
  for (const char* variable : {"SLURM_JOB_ID", "SLURM_STEP_ID", "PMIX_NAMESPACE"}) {
    EXPECT_NE(name({{variable, "1"}}), name({{variable, "2"}})) << variable;
    EXPECT_NE(name({{variable, "1"}}), name({}));
  }
}

TEST(TcpOptions, SecretsComeFromTheEnvironment) {
  EXPECT_EQ(TcpOptions::from_environment().secret, "");
  const std::string path = testing::TempDir() + "winnow_secret";
  std::ofstream(path) << "from a file \r\n\n";
  {
    const Environment set(Variables{{"WINNOW_TCP_SECRET_FILE", path.c_str()}});
    EXPECT_EQ(TcpOptions::from_environment().secret, "from a file ");
  }
  const Environment set(Variables{{"WINNOW_TCP_SECRET", "from a variable"}});
  EXPECT_EQ(TcpOptions::from_environment().secret, "from a variable");
  const auto refuses = [](const char* name, const char* value, const char* why) {
    const Environment wrong(Variables{{name, value}});
    EXPECT_THAT([] { (void)TcpOptions::from_environment(); },
                ThrowsMessage<UsageError>(HasSubstr(why)));
  };
  refuses("WINNOW_TCP_SECRET_FILE", path.c_str(), "both set");
  refuses("WINNOW_TCP_SECRET", "", "WINNOW_TCP_SECRET is empty");
  refuses("WINNOW_TCP_SECRET_FILE", "/nowhere/at/all", "No such file");
  refuses("WINNOW_TCP_SECRET_FILE", "/dev/zero", "is no regular file");
  refuses("WINNOW_TCP_SECRET_FILE", "/", "is no regular file");
  std::ofstream(path) << std::string(70000, 'x');
  refuses("WINNOW_TCP_SECRET_FILE", path.c_str(), "must be at most 65536");
  std::ofstream(path, std::ios::trunc) << "\n";
  refuses("WINNOW_TCP_SECRET_FILE", path.c_str(), "is empty");
  std::remove(path.c_str());
}

// One of these misspelt would leave a job open, or its messages readable.
TEST(TcpOptions, MisspeltVariablesAreRefused) {
  const auto refuses = [](const char* name, const char* means) {
    const Environment wrong(Variables{{name, "secret"}});
    EXPECT_THAT([] { (void)TcpOptions::from_environment(); },
                ThrowsMessage<UsageError>(HasSubstr("did you mean '" + std::string(means) + "'?")))
        << name;
  };
  refuses("WINNOW_TCP_TSL", "WINNOW_TCP_TLS");
  refuses("WINNOW_TCP_TLS_CERT", "WINNOW_TCP_TLS_CERTIFICATE");
  refuses("WINNOW_TCP_SECRETS", "WINNOW_TCP_SECRET");
  refuses("WINNOW_TCP_SECRET_FILES", "WINNOW_TCP_SECRET_FILE");
  refuses("WINNOW_TCP_POTR", "WINNOW_TCP_PORT");
  refuses("WINNOW_SOCKET_IFNAMES", "WINNOW_SOCKET_IFNAME");
  refuses("WINNOW_SOCKETS_IFNAME", "WINNOW_SOCKET_IFNAME");
  refuses("WINNOW_TLS", "WINNOW_TCP_TLS");
  refuses("WINNOW_SECRET", "WINNOW_TCP_SECRET");
  refuses("WINNOW_TCP_TLS_CA", "WINNOW_TCP_TLS_AUTHORITY");
  refuses("WINNOW_TCP_CERT", "WINNOW_TCP_TLS_CERTIFICATE");
  refuses("WINNOW_TCP_KEY", "WINNOW_TCP_TLS_KEY");
  refuses("WINNOW_TCP_HOST", "WINNOW_SOCKET_IFNAME");
  refuses("WINNOW_TCP_INTERFACE", "WINNOW_SOCKET_IFNAME");
  refuses("WINNOW_TCP_SOCKET_IFNAMES", "WINNOW_SOCKET_IFNAME");
  refuses("WINNOW_TCP_PSK", "WINNOW_TCP_SECRET");
  for (const char* far : {"WINNOW_TCP_HOST_TIMEOUT", "WINNOW_TCP_FOO", "WINNOW_TCP_"}) {
    const Environment wrong(Variables{{far, "x"}});
    EXPECT_THAT([] { (void)TcpOptions::from_environment(); },
                ThrowsMessage<UsageError>(HasSubstr("known are WINNOW_SOCKET_IFNAME, ")))
        << far;
  }
  for (const char* other : {"WINNOW_ROOT", "WINNOW_DIR", "WINNOW_COMPRESSOR", "WINNOW_LIBRARY"}) {
    const Environment set(Variables{{other, "x"}});
    EXPECT_NO_THROW((void)TcpOptions::from_environment()) << other;
  }
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
