// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Meetings of which one rank cannot listen for the others. Nobody has a deadline unless a test is
// about it: a rank without the failure would wait until the test times out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/tcp.hpp>

#include "comm/transport/tcp/meeting.hpp"
#include "comm/transport/tcp/mesh.hpp"
#include "comm/transport/tcp/note.hpp"
#include "comm/transport/tcp/rank_failure.hpp"

namespace winnow::comm {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

Deadline briefly() {
  return Deadline::after(std::chrono::milliseconds(300));
}

/// A meeting that no other test and no other process has.
TcpMeeting new_meeting(int size) {
  static std::atomic<int> number = 0;
  return {.host = "localhost",
          .size = size,
          .job = "fails " + std::to_string(::getpid()) + ' ' + std::to_string(number++)};
}

/// The kind and the text of what a call throws; nothing if it returns.
std::string thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return std::string("UsageError: ") + error.what();
  } catch (const CommError& error) {
    return std::string("CommError: ") + error.what();
  }
  return "";
}

std::string thrown_by_rank(TcpMeeting meeting, int rank, const TcpOptions& options,
                           Deadline deadline = Deadline::never()) {
  meeting.rank = rank;
  return thrown_by([&] { (void)tcp_transport(meeting, deadline, options); });
}

/// Runs a job whose ranks have these options, and returns what each rank throws.
std::vector<std::string> thrown_by_job(const std::vector<TcpOptions>& options) {
  const TcpMeeting meeting = new_meeting(static_cast<int>(options.size()));
  std::vector<std::string> said(options.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < options.size(); ++rank)
    threads.emplace_back(
        [&, rank] { said[rank] = thrown_by_rank(meeting, static_cast<int>(rank), options[rank]); });
  for (std::thread& thread : threads) thread.join();
  return said;
}

/// The one at which it listens at 127.0.0.1.
std::string port_of(const TcpPorts& ports) {
  for (const Endpoint& endpoint : ports.address.endpoints) {
    const std::string text = endpoint.text();
    if (endpoint.family() == AF_INET) return text.substr(text.rfind(':') + 1);
  }
  return "";
}

const TcpOptions kNoInterface{.interfaces = "winnow-none"};

/// A usage error that names this rank.
auto blames(int rank, const std::string& text) {
  return AllOf(StartsWith("UsageError: "), HasSubstr("rank " + std::to_string(rank) + ": "),
               HasSubstr(text));
}

TEST(RankFailure, AllRanksThrowWhatOneRanksOptionsAre) {
  struct Case {
    TcpOptions options;
    const char* text;
  };
  const TcpPorts holds = open_ports("lo", Reach::hosts, {.first = 28473, .last = 28673});
  const std::string port = port_of(holds);
  const TcpTls no_file{.mode = TcpTls::Mode::certificates,
                       .certificate = "/nowhere/rank.pem",
                       .key = "/nowhere/rank.key",
                       .authority = "/nowhere/ca.pem"};
  for (const Case& wrong :
       {Case{kNoInterface, "no network interface 'winnow-none'"},
        Case{{.interfaces = "", .ports = "29600"}, "ports '29600'"},
        Case{{.interfaces = "", .ports = std::string(port).append("-").append(port)},
             "others have"},
        Case{{.interfaces = "", .host_timeout = 0}, "host_timeout"},
        Case{{.interfaces = "", .tls = no_file}, "/nowhere/rank.pem"}}) {
    for (const char* secret : {"", "of the job"}) {
      for (const int rank : {0, 1, 2}) {
        std::vector<TcpOptions> options(3, {.secret = secret});
        TcpOptions& its = options[static_cast<std::size_t>(rank)];
        its = wrong.options;
        its.secret = secret;
        EXPECT_THAT(thrown_by_job(options), Each(blames(rank, wrong.text)))
            << rank << ' ' << wrong.text;
      }
    }
  }
}

TEST(RankFailure, AllRanksThrowWhatOneRanksEnvironmentIs) {
  for (const int wrong : {0, 1}) {
    TcpMeeting meeting = new_meeting(2);
    std::vector<std::string> said(2);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        TcpMeeting mine = meeting;
        mine.rank = rank;
        const auto read = [&](TcpOptions&) {
          if (rank == wrong) throw UsageError("a variable is wrong");
        };
        said[static_cast<std::size_t>(rank)] = thrown_by(
            [&] { (void)tcp_transport_by(mine, Deadline::never(), {.secret = "s"}, read); });
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_THAT(said, Each(blames(wrong, "a variable is wrong")));
  }
}

// Rank 0 answers the port until all know.
TEST(RankFailure, RanksThatComeLateThrowItToo) {
  for (const int wrong : {0, 1}) {
    const TcpMeeting meeting = new_meeting(4);
    std::vector<std::string> said(4);
    const auto start = [&](int rank) {
      return std::thread([&, rank] {
        said[static_cast<std::size_t>(rank)] =
            thrown_by_rank(meeting, rank, rank == wrong ? kNoInterface : TcpOptions());
      });
    };
    std::thread first = start(0), second = start(1);
    second.join();
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    start(2).join();
    start(3).join();
    first.join();
    EXPECT_THAT(said, Each(blames(wrong, "winnow-none")));
  }
}

TEST(RankFailure, EachOfSeveralThrowsItsOwn) {
  const TcpOptions no_ports{.interfaces = "", .ports = "none"};
  const auto said = thrown_by_job({kNoInterface, no_ports, {}});
  EXPECT_THAT(said[0], blames(0, "winnow-none"));
  EXPECT_THAT(said[1], blames(1, "ports 'none'"));
  EXPECT_THAT(said[2], StartsWith("UsageError: rank "));
}

TEST(RankFailure, TheRankThrowsItWhereItCannotTell) {
  EXPECT_THAT(thrown_by_job({kNoInterface}), Each(blames(0, "winnow-none")));
  for (const int rank : {0, 1})
    EXPECT_THAT(thrown_by_rank(new_meeting(2), rank, kNoInterface, briefly()),
                blames(rank, "winnow-none"));
}

// It needs the secret to prove that it is of the job.
TEST(RankFailure, AStrangersEndsNoJob) {
  const TcpMeeting meeting = new_meeting(2);
  const TcpOptions right{.interfaces = "", .secret = "right"};
  TcpOptions wrong = kNoInterface;
  wrong.secret = "wrong";
  std::string zero;
  std::thread host([&] { zero = thrown_by_rank(meeting, 0, right); });
  EXPECT_THAT(thrown_by_rank(meeting, 1, wrong, Deadline::after(std::chrono::seconds(1))),
              blames(1, "winnow-none"));
  EXPECT_EQ(thrown_by_rank(meeting, 1, right), "");
  host.join();
  EXPECT_EQ(zero, "");
}

// Ranks that have come learn of it; nobody else could.
TEST(TcpMeeting, AnotherThreadMayStopIt) {
  TcpMeeting meeting = new_meeting(3);
  std::string guest;
  std::thread joins([&] { guest = thrown_by_rank(meeting, 1, {}); });
  std::atomic<std::int32_t> stop = 0;
  TcpMeeting mine = meeting;
  mine.stop = &stop;
  std::string host;
  std::thread hosts([&] { host = thrown_by_rank(mine, 0, {}); });
  std::this_thread::sleep_for(std::chrono::seconds(1));  // most likely rank 1 has joined
  stop = 1;
  hosts.join();
  EXPECT_THAT(host, AllOf(StartsWith("CommError: "), HasSubstr("stopped the meeting")));
  joins.join();
  EXPECT_THAT(guest, AllOf(StartsWith("CommError: rank 0: "), HasSubstr("stopped the meeting")));
}

TEST(RankFailure, TravelsAsALine) {
  const auto of = [](const Error& error) {
    return RankFailure::parse(RankFailure::of(3, error).line());
  };
  const auto usage = of(UsageError("two\nlines; and more"));
  ASSERT_TRUE(usage);
  EXPECT_EQ(usage->rank, 3);
  EXPECT_EQ(usage->why.kind, FailureKind::usage);
  EXPECT_EQ(usage->why.text, "two?lines; and more");
  EXPECT_THAT([&] { usage->fail(); }, ThrowsMessage<UsageError>("rank 3: two?lines; and more"));
  const auto comm = of(CommError(std::string(5000, 'x'), 24));
  ASSERT_TRUE(comm);
  EXPECT_EQ(comm->why.text, std::string(1024, 'x'));
  EXPECT_THAT([&] { comm->fail(); }, ThrowsMessage<CommError>(StartsWith("rank 3: xxx")));
  for (const char* line : {"", "winnow-tcp-2;0;0;", "winnow-tcp-failure;", "winnow-tcp-failure;3",
                           "winnow-tcp-failure;x;usage;y", "winnow-tcp-failure;3;odd;y"})
    EXPECT_FALSE(RankFailure::parse(line)) << line;
}

TEST(Note, TellsAFailureAndItsKind) {
  for (const FailureKind kind :
       {FailureKind::environment, FailureKind::deadline, FailureKind::usage}) {
    const Failure told = failure_in(note_of("why\n", kind));
    EXPECT_EQ(told.kind, kind);
    EXPECT_EQ(told.text, "why?");
  }
  for (const char* of_no_kind : {"", "\3why", "\177why", "\377why"})
    EXPECT_EQ(failure_in(of_no_kind).kind, FailureKind::environment) << of_no_kind;
}

// Where ranks meet through a store: the text of the error goes in the place of the address.
TEST(TcpListener, ARanksErrorMayStandInTheListOfAddresses) {
  std::vector<TcpListener> listeners;
  for (int rank = 0; rank < 2; ++rank) listeners.emplace_back(TcpOptions{.interfaces = "lo"});
  const std::vector<std::string> addresses{listeners[0].address(),
                                           thrown_by([] { TcpListener listener(kNoInterface); }),
                                           listeners[1].address()};
  std::vector<std::string> said(2);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 2; ++i)
    threads.emplace_back([&, i] {
      said[i] = thrown_by([&] {
        (void)listeners[i].connect(static_cast<int>(2 * i), addresses, Deadline::never());
      });
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(said, Each(AllOf(StartsWith("UsageError: "), HasSubstr("address 1: "),
                               HasSubstr("no network interface 'winnow-none'"))));
}

}  // namespace
}  // namespace winnow::comm
