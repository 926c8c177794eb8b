// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Promises of ranks as threads beyond those of all transports.
#include "comm/transport/local/local.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/transport.hpp>

namespace winnow {
namespace {

using Bytes = std::vector<std::byte>;

std::string thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const CommError& error) {
    return error.what();
  }
  return "";
}

void wait_for_all(Transport& transport) {
  transport.wait(transport.start({}), Deadline::never());
}

TEST(Local, NeedsARank) {
  EXPECT_THROW((void)local_transports(0), UsageError);
  EXPECT_THROW((void)local_transports(-3), UsageError);
  EXPECT_EQ(local_transports(1).at(0)->size(), 1);
}

TEST(Local, AReceiverLearnsThatItsPeerIsGone) {
  for (int round = 0; round < 50; ++round) {
    auto transports = local_transports(3);
    std::thread leaver([&] { transports[2].reset(); });
    Bytes buffer(4);
    transports[0]->recv(buffer, 2, nullptr);
    EXPECT_NE(thrown_by([&] { wait_for_all(*transports[0]); }).find("rank 2 is gone"),
              std::string::npos);
    leaver.join();
  }
}

TEST(Local, ASenderLearnsThatItsPeerIsGone) {
  auto transports = local_transports(2);
  const Bytes message(4);
  transports[1]->send(message, 0);
  const Ticket ticket = transports[1]->start({});
  transports[0].reset();
  EXPECT_NE(
      thrown_by([&] { transports[1]->wait(ticket, Deadline::never()); }).find("rank 0 is gone"),
      std::string::npos);
}

TEST(Local, WhatAPeerSaysCannotCommandATerminal) {
  auto transports = local_transports(2);
  transports[0]->abort("red \x1b[31m\nrank 1: all is well\x7f");
  Bytes buffer(4);
  transports[1]->recv(buffer, 0, nullptr);
  const std::string text = thrown_by([&] { wait_for_all(*transports[1]); });
  EXPECT_NE(text.find("rank 0 aborted: red ?[31m?rank 1: all is well?"), std::string::npos) << text;
}

TEST(Local, WhatAPeerTookBeforeItWentIsDone) {
  auto transports = local_transports(2);
  const Bytes message(4, std::byte{7});
  Bytes buffer(4);
  transports[0]->send(message, 1);
  const Ticket ticket = transports[0]->start({});
  transports[1]->recv(buffer, 0, nullptr);
  wait_for_all(*transports[1]);
  transports[1].reset();
  transports[0]->wait(ticket, Deadline::never());
  EXPECT_EQ(buffer, message);
}

TEST(Local, MessagesOfARankThatIsGoneAreNotRead) {
  auto transports = local_transports(2);
  {
    const Bytes message(1000, std::byte{7});
    transports[0]->send(message, 1);
    (void)transports[0]->start({});
    transports[0].reset();
  }  // a sanitizer would now see a read of it
  Bytes buffer(1000);
  transports[1]->recv(buffer, 0, nullptr);
  EXPECT_NE(thrown_by([&] { wait_for_all(*transports[1]); }).find("rank 0 is gone"),
            std::string::npos);
}

// A sender may leave in the middle of a copy and then free its buffer.
TEST(Local, ASenderThatLeavesLetsACopyEnd) {
  for (int round = 0; round < 20; ++round) {
    auto transports = local_transports(2);
    std::thread receiver([&] {
      Bytes buffer(std::size_t{1} << 20);
      transports[1]->recv(buffer, 0, nullptr);
      const std::string text = thrown_by([&] { wait_for_all(*transports[1]); });
      EXPECT_TRUE(text.empty() || text.find("rank 0 is gone") != std::string::npos) << text;
      if (text.empty()) {
        EXPECT_EQ(buffer, Bytes(buffer.size(), std::byte{9}));
      }
    });
    {
      const Bytes message(std::size_t{1} << 20, std::byte{9});
      transports[0]->send(message, 1);
      (void)transports[0]->start({});
      std::this_thread::yield();
      transports[0].reset();
    }
    receiver.join();
  }
}

TEST(Local, BothRanksLearnThatAMessageIsTooLong) {
  auto transports = local_transports(2);
  std::string sender_text;
  std::thread sender([&] {
    const Bytes message(100);
    transports[0]->send(message, 1);
    sender_text = thrown_by([&] { wait_for_all(*transports[0]); });
  });
  Bytes buffer(99);
  transports[1]->recv(buffer, 0, nullptr);
  const std::string receiver_text = thrown_by([&] { wait_for_all(*transports[1]); });
  sender.join();
  for (const std::string& text : {sender_text, receiver_text}) {
    EXPECT_NE(text.find("100 bytes"), std::string::npos) << text;
    EXPECT_NE(text.find("buffer of 99"), std::string::npos) << text;
  }
}

TEST(Local, TransportsMayDieInAnyOrder) {
  for (const bool forward : {true, false}) {
    auto transports = local_transports(3);
    const Bytes message(10);
    for (int rank = 0; rank < 3; ++rank) {
      transports[static_cast<std::size_t>(rank)]->send(message, (rank + 1) % 3);
      (void)transports[static_cast<std::size_t>(rank)]->start({});
    }
    for (std::size_t n = 0; n < 3; ++n) transports[forward ? n : 2 - n].reset();
  }
}

// Strict ranks. Rank `rank` sends a message to `peer`, or receives one, with its own start.
class StrictRanks {
 public:
  explicit StrictRanks(int size)
      : transports_(comm::local_transports(size, comm::LocalRules::strict)),
        tickets_(transports_.size()) {}

  StrictRanks& send(int rank, int peer) {
    of(rank).send(sent_, peer);
    return start(rank);
  }
  StrictRanks& receive(int rank, int peer) {
    of(rank).recv(received_.emplace_back(sent_.size()), peer, nullptr);
    return start(rank);
  }
  // Waits on all ranks at once for everything they started; returns + or - for each: did it
  // complete?
  std::string wait(std::chrono::milliseconds most) {
    std::vector<std::thread> threads;
    std::string ends(transports_.size(), '-');
    for (std::size_t rank = 0; rank < ends.size(); ++rank) {
      threads.emplace_back([&, rank] {
        const std::string text =
            thrown_by([&] { transports_[rank]->wait(tickets_[rank], Deadline::after(most)); });
        if (text.empty()) ends[rank] = '+';
      });
    }
    for (std::thread& thread : threads) thread.join();
    return ends;
  }

 private:
  Transport& of(int rank) { return *transports_[static_cast<std::size_t>(rank)]; }
  StrictRanks& start(int rank) {
    tickets_[static_cast<std::size_t>(rank)] = of(rank).start({});
    return *this;
  }

  const Bytes sent_ = Bytes(8, std::byte{5});
  std::deque<Bytes> received_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<Ticket> tickets_;
};

TEST(StrictLocal, GroupsThatFollowEachOtherMove) {
  constexpr std::chrono::seconds kLong{60};
  StrictRanks two(2);
  two.send(0, 1).receive(0, 1);
  two.receive(1, 0).send(1, 0);
  EXPECT_EQ(two.wait(kLong), "++");
  StrictRanks three(3);
  three.send(0, 1).receive(0, 2);
  three.receive(1, 0).send(1, 2);
  three.receive(2, 1).send(2, 0);
  EXPECT_EQ(three.wait(kLong), "+++");
}

// A loose transport would let all of them go on.
TEST(StrictLocal, GroupsThatWaitForEachOtherDoNotMove) {
  constexpr std::chrono::milliseconds kShort{50};
  StrictRanks senders(2);
  senders.send(0, 1).receive(0, 1);
  senders.send(1, 0).receive(1, 0);
  EXPECT_EQ(senders.wait(kShort), "--");
  StrictRanks receivers(2);
  receivers.receive(0, 1).send(0, 1);
  receivers.receive(1, 0).send(1, 0);
  EXPECT_EQ(receivers.wait(kShort), "--");
  StrictRanks circle(3);
  circle.receive(0, 1).send(0, 2);
  circle.receive(1, 2).send(1, 0);
  circle.receive(2, 0).send(2, 1);
  EXPECT_EQ(circle.wait(kShort), "---");
}

TEST(StrictLocal, OneGroupMovesInAnyOrder) {
  auto transports = comm::local_transports(2, comm::LocalRules::strict);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      Transport& transport = *transports[static_cast<std::size_t>(rank)];
      const Bytes message(9, std::byte{7});
      Bytes buffer(9);
      transport.send(message, 1 - rank);
      transport.recv(buffer, 1 - rank, nullptr);
      EXPECT_EQ(thrown_by([&] { wait_for_all(transport); }), "");
      EXPECT_EQ(buffer, message);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace winnow
