// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// How ranks meet over TCP, who is kept out, and what ends a job. What all transports promise is in
// transport_test and collectives_test.
#include "winnow/tcp.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>
#include <winnow/error.hpp>

#include "comm/transport/growing.hpp"
#include "comm/transport/printable.hpp"
#include "comm/transport/tcp/frames.hpp"
#include "comm/transport/tcp/mesh.hpp"
#include "comm/transport/tcp/note.hpp"
#include "comm/transport/tcp/tcp.hpp"
#include "tests/harness/tcp_ranks.hpp"

namespace winnow::comm {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::ThrowsMessage;
using Bytes = std::vector<std::byte>;

Deadline soon() {
  return Deadline::after(std::chrono::seconds(60));
}
Deadline briefly() {
  return Deadline::after(std::chrono::milliseconds(200));
}

/// Runs `body` on a thread for each rank; returns what each threw, or "".
std::vector<std::string> thrown_on(int ranks, const std::function<void(int rank)>& body) {
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const Error& error) {
        texts[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return texts;
}

std::vector<std::string> addresses_of(const std::vector<TcpListener>& listeners) {
  std::vector<std::string> addresses;
  for (const TcpListener& listener : listeners) addresses.push_back(listener.address());
  return addresses;
}

/// Each rank sends its number to all others.
void expect_all_talk(Transport& transport) {
  std::vector<int> all(static_cast<std::size_t>(transport.size()));
  const int mine = transport.rank();
  transport.all_gather({}, std::as_bytes(std::span(&mine, 1)),
                       std::as_writable_bytes(std::span(all)), soon());
  for (int rank = 0; rank < transport.size(); ++rank)
    EXPECT_EQ(all[static_cast<std::size_t>(rank)], rank);
}

/// A connection to an endpoint, made.
Socket connected_to(const Endpoint& endpoint) {
  Socket socket = connect_to(endpoint);
  while (is_connecting(socket, endpoint)) ::poll(nullptr, 0, 1);
  return socket;
}

/// Sends raw bytes, as far as the other end takes them.
void send_raw(const Socket& socket, const void* bytes, std::size_t count) {
  (void)!::send(socket.get(), bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
}

Endpoint endpoint_at(std::string_view text) {
  return Endpoint::parse(text).value_or(Endpoint());
}

TEST(TcpAddress, TextsAndValuesAreEqual) {
  const TcpListener listener;
  const TcpAddress address = TcpAddress::parse(listener.address());
  EXPECT_EQ(address.text(), listener.address());
  EXPECT_EQ(address.machine, TcpAddress::this_machine());
  EXPECT_FALSE(address.endpoints.empty());
  EXPECT_THAT(listener.address(), testing::Not(testing::ContainsRegex("[ \n\t]")));
  EXPECT_NE(listener.address(), TcpListener().address());
}

TEST(TcpAddress, RefusesOtherTexts) {
  const std::string good =
      "winnow-tcp-2;000102030405060708090a0b0c0d0e0f;0123456789abcdef;"
      "@0001f,10.0.0.1:4000,[fd00::1]:65535";
  EXPECT_EQ(TcpAddress::parse(good).text(), good);
  for (const std::string& text :
       {std::string(), good.substr(1), good + ",", good + ",10.0.0.1", good + ",10.0.0.256:1",
        good + ",10.0.0.1:0", good + ",10.0.0.1:65536", good + ",fd00::1:5", good + ",[fd00::1:5",
        good + ",@", good + ",@/tmp/x", good + ",@" + std::string(200, 'a'),
        good.substr(0, good.rfind(';') + 1),
        std::string("winnow-tcp-2;00;0123456789abcdef;1.1.1.1:1"),
        std::string("winnow-tcp-1") + good.substr(12), std::string(1000, ';')}) {
    EXPECT_THAT([&] { (void)TcpAddress::parse(text); },
                ThrowsMessage<UsageError>(HasSubstr("no address of a TcpListener")))
        << text;
  }
}

// It admits to the job.
TEST(TcpAddress, ErrorsDoNotShowItsRandomNumber) {
  const std::string number = "0a1b2c3d4e5f60718293a4b5c6d7e8f9";
  const std::string good = "winnow-tcp-2;" + number + ";0123456789abcdef;10.0.0.1:4000";
  for (const std::string& text :
       {good + ' ', ' ' + good, good.substr(1), good.substr(0, 30), good.substr(20),
        std::string(good).insert(25, " "), std::string(good).append(1, '\n').append(good)}) {
    EXPECT_THAT([&] { (void)TcpAddress::parse(text); },
                ThrowsMessage<UsageError>(AllOf(HasSubstr("no address of a TcpListener"),
                                                testing::Not(HasSubstr(number.substr(0, 8))),
                                                testing::Not(HasSubstr(number.substr(22))))))
        << text;
  }
  EXPECT_THAT([&] { (void)TcpAddress::parse(good + ' '); },
              ThrowsMessage<UsageError>(HasSubstr("'winnow-tcp-2;...;...;10.0.0.1:4000 ' is no")));
  EXPECT_THAT([&] { (void)TcpAddress::parse("no key /data/20261129/rank.key"); },
              ThrowsMessage<UsageError>(HasSubstr("/data/20261129/rank.key")));
}

TEST(TcpAddress, LoopbackIsForOneMachineAlone) {
  const TcpAddress address{.nonce = {},
                           .machine = 7,
                           .endpoints = {endpoint_at("10.0.0.1:1"), endpoint_at("[::1]:2"),
                                         endpoint_at("127.0.0.1:3"), endpoint_at("@0f")}};
  const auto texts = [&](std::uint64_t machine) {
    std::vector<std::string> all;
    for (const Endpoint& endpoint : reachable(address, machine)) all.push_back(endpoint.text());
    return all;
  };
  EXPECT_THAT(texts(7), testing::ElementsAre("[::1]:2", "127.0.0.1:3", "@0f", "10.0.0.1:1"));
  EXPECT_THAT(texts(8), testing::ElementsAre("10.0.0.1:1"));
}

TEST(TcpOptions, AreChecked) {
  EXPECT_THAT([] { TcpListener({.interfaces = "no_such_interface"}); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr("no_such_interface"), HasSubstr("lo"))));
  for (const char* const ports :
       {"29600", "29600-", "-1", "0-7", "7-6", "1-65536", "1-2,4", "a-b"}) {
    EXPECT_THAT([ports] { TcpListener({.ports = ports}); },
                ThrowsMessage<UsageError>(HasSubstr("FIRST-LAST")));
  }
  EXPECT_THAT([] { TcpListener({.host_timeout = 0.5}); },
              ThrowsMessage<UsageError>(HasSubstr("host_timeout")));
}

TEST(TcpListener, ListensOnTheNamedInterfacesAlone) {
  const TcpListener listener({.interfaces = "lo"});
  for (const Endpoint& endpoint : TcpAddress::parse(listener.address()).endpoints)
    EXPECT_TRUE(endpoint.is_local()) << endpoint.text();
}

TEST(TcpListener, ConnectsOnce) {
  TcpListener listener;
  const std::array addresses{listener.address()};
  (void)listener.connect(0, addresses, soon());
  EXPECT_THAT([&] { (void)listener.connect(0, addresses, soon()); },
              ThrowsMessage<UsageError>(HasSubstr("connects once")));
}

// The error lists the interfaces that qualify, and no others.
TEST(TcpListener, NamesTheInterfacesThatThereAre) {
  EXPECT_THAT([] { (void)local_endpoints("winnow-none", Reach::machine); },
              ThrowsMessage<UsageError>(testing::EndsWith("is up; there are lo")));
}

// Both families have the ports of their own.
TEST(TcpListener, ListensWithinARange) {
  const PortRange range{.first = 28471, .last = 28472};
  std::vector<TcpPorts> ports;
  for (int rank = 0; rank < 2; ++rank) {
    ports.push_back(open_ports("lo", Reach::hosts, range));
    for (const Endpoint& endpoint : ports.back().address.endpoints) {
      if (endpoint.family() == AF_UNIX) continue;
      EXPECT_THAT(endpoint.text(), HasSubstr(":" + std::to_string(range.first + rank)));
    }
  }
  EXPECT_THAT([&] { open_ports("lo", Reach::hosts, range); },
              ThrowsMessage<UsageError>(HasSubstr("in ports 28471 to 28472")));
  ports.pop_back();
  EXPECT_NO_THROW(open_ports("lo", Reach::hosts, range));
}

// Each family by itself: the others' endpoints are taken from the addresses.
TEST(TcpMesh, ConnectsOverEachFamily) {
  for (const int family : {AF_UNIX, AF_INET, AF_INET6}) {
    std::vector<TcpPorts> ports;
    std::vector<std::string> addresses;
    for (int rank = 0; rank < 3; ++rank) {
      ports.push_back(open_ports("lo"));
      std::erase_if(ports.back().address.endpoints,
                    [&](const Endpoint& endpoint) { return endpoint.family() != family; });
      if (ports.back().address.endpoints.empty()) GTEST_SKIP() << "lo has no address of IPv6 here";
      addresses.push_back(ports.back().address.text());
    }
    const auto texts = thrown_on(3, [&](int rank) {
      auto links = connect_mesh(ports[static_cast<std::size_t>(rank)], rank, addresses, soon());
      for (int peer = 0; peer < 3; ++peer) {
        const TcpLink& link = links[static_cast<std::size_t>(peer)];
        EXPECT_EQ(link.data.is_open(), peer != rank);
        if (peer == rank) continue;
        EXPECT_EQ(Endpoint::of(link.data.socket()).family(), family);
        EXPECT_EQ(Endpoint::of(link.control.socket()).family(), family);
      }
      expect_all_talk(*tcp_transport_over(rank, {0, 0, 0}, std::move(links), make_bell(), {}));
    });
    EXPECT_THAT(texts, Each(""));
  }
}

// An endpoint where nobody listens, and one where a stranger does and never answers, before the
// right one.
TEST(TcpMesh, TriesAllEndpoints) {
  const TcpListener stranger;
  std::vector<TcpPorts> ports;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < 2; ++rank) {
    ports.push_back(open_ports("lo"));
    auto& endpoints = ports.back().address.endpoints;
    const auto strangers = TcpAddress::parse(stranger.address()).endpoints;
    endpoints.insert(endpoints.begin(), {endpoint_at("127.0.0.1:1"), strangers.front()});
    addresses.push_back(ports.back().address.text());
  }
  EXPECT_THAT(thrown_on(2,
                        [&](int rank) {
                          (void)connect_mesh(ports[static_cast<std::size_t>(rank)], rank, addresses,
                                             soon());
                        }),
              Each(""));
}

TEST(TcpMesh, AMissingRankIsNamedAtTheDeadline) {
  std::vector<TcpListener> listeners(3);
  const auto addresses = addresses_of(listeners);
  const auto texts = thrown_on(2, [&](int rank) {
    (void)listeners[static_cast<std::size_t>(rank)].connect(rank, addresses, briefly());
  });
  EXPECT_THAT(texts, Each(AllOf(HasSubstr("deadline"), HasSubstr("rank 2"))));
}

TEST(TcpMesh, AnAddressWhereNobodyListensIsNamedAtTheDeadline) {
  std::vector<TcpListener> listeners(2);
  auto addresses = addresses_of(listeners);
  TcpAddress wrong = TcpAddress::parse(addresses[0]);
  wrong.endpoints = {endpoint_at("127.0.0.1:1")};
  addresses[0] = wrong.text();
  EXPECT_THAT(
      [&] { (void)listeners[1].connect(1, addresses, briefly()); },
      ThrowsMessage<CommError>(AllOf(HasSubstr("rank 0 (127.0.0.1:1: "), HasSubstr("refused"))));
}

// One rank's mistake is an error on all, at once: none of these waits has a deadline.
TEST(TcpMesh, AWrongListIsAnErrorOnAllRanks) {
  struct Case {
    const char* name;
    std::function<void(std::vector<std::string>&)> change;  // of what the last rank passes
    const char* said;
  };
  const std::vector<Case> cases = {
      {"fewer", [](auto& list) { list.erase(list.begin()); }, "rank"},
      {"more", [](auto& list) { list.push_back(TcpListener().address()); }, "addresses of 4 ranks"},
      {"swapped", [](auto& list) { std::swap(list[0], list[1]); }, "different addresses"},
      {"not its own", [](auto& list) { list[2] = TcpListener().address(); }, "is not that of"},
      {"no address", [](auto& list) { list[1] = "10.0.0.1:4000"; }, "no address of a TcpListener"},
      {"nothing", [](auto& list) { list[0].clear(); }, "no address of a TcpListener"},
  };
  for (const Case& c : cases) {
    std::vector<TcpListener> listeners(3);
    const auto addresses = addresses_of(listeners);
    const auto texts = thrown_on(3, [&](int rank) {
      std::vector<std::string> mine = addresses;
      if (rank == 2) c.change(mine);
      (void)listeners[static_cast<std::size_t>(rank)].connect(rank, mine, Deadline::never());
    });
    EXPECT_THAT(texts, Each(HasSubstr(c.said))) << c.name;
  }
}

// It knows no other rank, and tells those that come to it, and these the rest.
TEST(TcpMesh, AListOfNoAddressesIsAnErrorOnAllRanks) {
  for (const int wrong : {0, 1}) {
    std::vector<TcpListener> listeners(3);
    const auto addresses = addresses_of(listeners);
    const auto texts = thrown_on(3, [&](int rank) {
      const std::vector<std::string> junk(3, "junk\n");
      (void)listeners[static_cast<std::size_t>(rank)].connect(
          rank, rank == wrong ? junk : addresses, Deadline::never());
    });
    EXPECT_THAT(texts, Each(HasSubstr("'junk?' is no address of a TcpListener"))) << wrong;
  }
}

TEST(TcpMesh, RefusesALocallyWrongCall) {
  const auto refuses = [](int rank, const std::vector<std::string>& list, const char* why) {
    TcpListener listener;
    std::vector<std::string> addresses = list;
    addresses.push_back(listener.address());
    EXPECT_THAT([&] { (void)listener.connect(rank, addresses, briefly()); },
                ThrowsMessage<UsageError>(HasSubstr(why)));
  };
  refuses(-1, {}, "rank -1 of 1");
  refuses(1, {}, "rank 1 of 1");
  refuses(0, {"10.0.0.1:4000"}, "no address of a TcpListener");
}

/// Of a peer that sends raw bytes: a hello, as NoteChannel's are.
void send_hello(const Connection& connection, std::uint32_t version = 3) {
  std::string hello(20, 'n');
  std::memcpy(hello.data(), &version, sizeof version);
  (void)send_note(connection, NoteKind::hello, hello);
}

/// What the other end sends until it closes the connection.
std::string all_from(const Socket& socket) {
  std::string all;
  for (std::array<char, 256> bytes{};;) {
    pollfd end{.fd = socket.get(), .events = POLLIN, .revents = 0};
    ::poll(&end, 1, 30000);
    const auto got = ::recv(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got <= 0) return all;
    all.append(bytes.data(), static_cast<std::size_t>(got));
  }
}

// A stranger that knows the port and not the address: it learns nothing, and the job begins.
TEST(TcpMesh, StrangersAreSentAway) {
  std::vector<TcpListener> listeners(2);
  const auto addresses = addresses_of(listeners);
  std::vector<Connection> silent, told;
  const std::string proof(32, '\0');
  for (const std::string& text : addresses) {
    const Endpoint endpoint = TcpAddress::parse(text).endpoints.front();
    silent.emplace_back(connected_to(endpoint));
    silent.emplace_back(connected_to(endpoint));
    send_hello(silent.back());
    told.emplace_back(connected_to(endpoint));
    send_raw(told.back().socket(), "GET / HTTP/1.1\r\nHost: winnow\r\n\r\n", 33);
    for (const std::uint32_t version : {2U, 4U}) {
      told.emplace_back(connected_to(endpoint));
      send_hello(told.back(), version);
    }
    for (const NoteKind kind : {NoteKind::hello, NoteKind::greeting, NoteKind::chosen,
                                NoteKind::join, NoteKind::refusal, NoteKind::abort}) {
      for (const std::string& note : {std::string(), proof, proof + "give up",
                                      proof + std::string(24, '\0'), std::string(5000, 'x')}) {
        told.emplace_back(connected_to(endpoint));
        (void)send_note(told.back(), kind, note);
        told.emplace_back(connected_to(endpoint));
        send_hello(told.back());
        (void)send_note(told.back(), kind, note);
      }
    }
  }
  const auto texts = thrown_on(2, [&](int rank) {
    expect_all_talk(*listeners[static_cast<std::size_t>(rank)].connect(rank, addresses, soon()));
  });
  EXPECT_THAT(texts, Each(""));
  constexpr std::size_t kHello = 16 + 20;
  for (const Connection& one : told) EXPECT_LE(all_from(one.socket()).size(), kHello);
}

// More strangers than a rank keeps, who say nothing.
TEST(TcpMesh, ACrowdOfStrangersDoesNotKeepRanksOut) {
  std::vector<TcpListener> listeners(2);
  const auto addresses = addresses_of(listeners);
  std::vector<Socket> crowd;
  for (int i = 0; i < 400; ++i)
    crowd.push_back(connect_to(TcpAddress::parse(addresses[0]).endpoints.front()));
  EXPECT_THAT(thrown_on(2,
                        [&](int rank) {
                          expect_all_talk(*listeners[static_cast<std::size_t>(rank)].connect(
                              rank, addresses, soon()));
                        }),
              Each(""));
}

/// Bytes that are garbage, or begin as a note or a frame does and go on as garbage.
std::string garbage(std::mt19937& random) {
  std::string bytes(random() % 200, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  const auto kind = static_cast<std::uint32_t>(random() % 10);
  const auto length = static_cast<std::uint32_t>(random() % 4 == 0 ? random() : random() % 100);
  const std::uint64_t magics[] = {0x65746f6e'574e4e57, FrameHeader::kMagic};
  if (random() % 3 != 0 && bytes.size() >= 16) {
    std::memcpy(bytes.data(), &magics[random() % 2], 8);
    std::memcpy(bytes.data() + 8, &kind, 4);
    std::memcpy(bytes.data() + 12, &length, 4);
  }
  return bytes;
}

TEST(TcpFuzz, GarbageAtTheHandshakeKeepsNobodyOut) {
  std::mt19937 random(1);
  for (int round = 0; round < 5; ++round) {
    std::vector<TcpListener> listeners(2);
    const auto addresses = addresses_of(listeners);
    std::vector<Socket> strangers;
    for (int i = 0; i < 40; ++i) {
      const auto& text = addresses[random() % 2];
      strangers.push_back(connected_to(TcpAddress::parse(text).endpoints.front()));
      const std::string bytes = garbage(random);
      send_raw(strangers.back(), bytes.data(), bytes.size());
      if (random() % 2 == 0) strangers.pop_back();
    }
    EXPECT_THAT(thrown_on(2,
                          [&](int rank) {
                            expect_all_talk(*listeners[static_cast<std::size_t>(rank)].connect(
                                rank, addresses, soon()));
                          }),
                Each(""));
  }
}

/// Rank 0's transport and the bare connections of rank 1 to it.
struct HalfBare {
  std::unique_ptr<Transport> transport;
  TcpLink link;
};
HalfBare half_bare() {
  std::vector<TcpPorts> ports = [] {
    std::vector<TcpPorts> both;
    for (int rank = 0; rank < 2; ++rank) both.push_back(open_ports("lo"));
    return both;
  }();
  const std::vector<std::string> addresses{ports[0].address.text(), ports[1].address.text()};
  HalfBare made;
  const auto texts = thrown_on(2, [&](int rank) {
    auto links = connect_mesh(ports[static_cast<std::size_t>(rank)], rank, addresses, soon());
    if (rank == 0)
      made.transport = tcp_transport_over(0, {0, 0}, std::move(links), make_bell(), {});
    else
      made.link = std::move(links[0]);
  });
  EXPECT_THAT(texts, Each(""));
  return made;
}

// After a good start a peer sends garbage, in messages or in notes, then closes: an error, never a
// crash, a hang or a byte beyond the buffer.
TEST(TcpFuzz, GarbageInMessagesAndNotesIsAnError) {
  std::mt19937 random(2);
  for (int round = 0; round < 40; ++round) {
    HalfBare half = half_bare();
    Bytes buffer(100, std::byte{0xA5});
    std::uint64_t bytes = 0;
    for (int i = 0; i < 3; ++i) half.transport->recv(std::span(buffer).first(50), 1, &bytes);
    const Ticket ticket = half.transport->start({});
    const Socket& victim = random() % 2 == 0 ? half.link.data.socket() : half.link.control.socket();
    const std::string text = garbage(random) + "and no message";
    send_raw(victim, text.data(), text.size());
    if (random() % 2 == 0) half.link = {};
    EXPECT_THROW(half.transport->wait(ticket, Deadline::after(std::chrono::milliseconds(300))),
                 CommError);
    EXPECT_TRUE(std::all_of(buffer.begin() + 50, buffer.end(),
                            [](std::byte byte) { return byte == std::byte{0xA5}; }));
  }
}

TEST(Tcp, AFrameThatIsNoneIsAnError) {
  HalfBare half = half_bare();
  Bytes buffer(50);
  half.transport->recv(buffer, 1, nullptr);
  send_raw(half.link.data.socket(), "sixteen bytes or more, none of them Winnow's", 44);
  EXPECT_THAT([&] { half.transport->wait(half.transport->start({}), Deadline::never()); },
              ThrowsMessage<CommError>(HasSubstr("what arrives is no message")));
}

TEST(Tcp, AMessageOf2To63BytesIsLongerThanItsBuffer) {
  HalfBare half = half_bare();
  Bytes buffer(50);
  half.transport->recv(buffer, 1, nullptr);
  const FrameHeader header{.message_bytes = std::uint64_t{1} << 63};
  send_raw(half.link.data.socket(), &header, sizeof header);
  EXPECT_THAT([&] { half.transport->wait(half.transport->start({}), Deadline::never()); },
              ThrowsMessage<CommError>(HasSubstr("a message of 9223372036854775808 bytes")));
}

// Every byte of a message, and of its header, by itself.
TEST(Tcp, AMessageMayArriveByteByByte) {
  HalfBare half = half_bare();
  Bytes buffer(8);
  std::uint64_t bytes = 0;
  half.transport->recv(buffer, 1, &bytes);
  const Ticket ticket = half.transport->start({});
  std::array<char, sizeof(FrameHeader) + 5> frame{};
  const FrameHeader header{.message_bytes = 5};
  std::memcpy(frame.data(), &header, sizeof header);
  std::memcpy(frame.data() + sizeof header, "hello", 5);
  for (const char& byte : frame) {
    EXPECT_FALSE(half.transport->test(ticket, soon()));
    send_raw(half.link.data.socket(), &byte, 1);
  }
  half.transport->wait(ticket, soon());
  EXPECT_EQ(bytes, 5U);
  EXPECT_EQ(std::memcmp(buffer.data(), "hello", 5), 0);
}

TEST(Tcp, AbortFromAnotherThreadWakesItsRankAndThePeers) {
  auto transports = tests::tcp_transports(3);
  Bytes buffer(8);
  std::thread aborter;
  const auto texts = thrown_on(3, [&](int rank) {
    Transport& transport = *transports[static_cast<std::size_t>(rank)];
    Bytes mine(8);
    transport.recv(mine, (rank + 1) % 3, nullptr);
    const Ticket ticket = transport.start({});
    if (rank == 1) {
      aborter = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));  // most likely all wait by then
        transport.abort("the loss is not finite");
      });
    }
    transport.wait(ticket, Deadline::never());
  });
  aborter.join();
  EXPECT_EQ(texts[1], "this rank aborted: the loss is not finite");
  for (const std::size_t rank : {0U, 2U})
    EXPECT_THAT(texts[rank], HasSubstr("rank 1 aborted: the loss is not finite"));
}

// A peer's words reach logs and terminals.
TEST(Tcp, TheReasonOfAnAbortIsTextAlone) {
  auto transports = tests::tcp_transports(2);
  transports[0]->abort("caf\xc3\xa9\x1b[2J\nrank 1: all is well\xff\xc3");
  Bytes buffer(1);
  transports[1]->recv(buffer, 0, nullptr);
  EXPECT_THAT(
      [&] { transports[1]->wait(transports[1]->start({}), Deadline::never()); },
      ThrowsMessage<CommError>(HasSubstr("rank 0 aborted: caf\xc3\xa9?[2J?rank 1: all is well??")));
}

TEST(Printable, KeepsTextAndNothingElse) {
  for (const char* kept : {"", "plain", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x8c\xbe"})
    EXPECT_EQ(printable(kept), kept);
  const std::vector<std::pair<std::string, std::string>> changed = {{"a\tb\r\n", "a?b??"},
                                                                    {"\x7f", "?"},
                                                                    {"\xc2\x9b"
                                                                     "31m",
                                                                     "?31m"},
                                                                    {"\xc0\xaf", "??"},
                                                                    {"\xed\xa0\x80", "???"},
                                                                    {"\xf4\x90\x80\x80", "????"},
                                                                    {"\xe2\x82", "??"},
                                                                    {std::string("\0x", 2), "?x"},
                                                                    {"\xe2\x80\xae"
                                                                     "x",
                                                                     "?x"}};
  for (const auto& [given, clean] : changed) EXPECT_EQ(printable(given), clean);
}

/// What rank 2 of 3 throws, a child process that may open so many files while it connects, and then
/// the others.
std::vector<std::string> thrown_with_files_left(rlim_t files) {
  std::vector<TcpListener> listeners;
  for (int rank = 0; rank < 2; ++rank) listeners.emplace_back(TcpOptions{.interfaces = "lo"});
  std::vector<std::string> addresses = addresses_of(listeners);
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    std::string said;
    const auto write_line = [&](const std::string& line) {
      (void)!::write(ends[1], (line + "\n").data(), line.size() + 1);
    };
    try {
      TcpListener listener({.interfaces = "lo"});
      write_line(listener.address());
      addresses.push_back(listener.address());
      const auto next = static_cast<rlim_t>(::dup(0));  // the lowest number that is free
      const rlimit few{.rlim_cur = next + files, .rlim_max = next + files};
      ::close(static_cast<int>(next));
      ::setrlimit(RLIMIT_NOFILE, &few);
      expect_all_talk(*listener.connect(2, addresses, soon()));
    } catch (const std::exception& error) {
      said = error.what();
    }
    write_line(said);
    ::_exit(0);
  }
  ::close(ends[1]);
  FILE* const lines = ::fdopen(ends[0], "r");
  const auto read_line = [lines] {
    std::array<char, 4096> line{};
    (void)!std::fgets(line.data(), line.size(), lines);
    std::string text(line.data());
    if (text.ends_with('\n')) text.pop_back();
    return text;
  };
  addresses.push_back(read_line());
  std::vector<std::string> texts = thrown_on(2, [&](int rank) {
    expect_all_talk(*listeners[static_cast<std::size_t>(rank)].connect(rank, addresses, soon()));
  });
  texts.insert(texts.begin(), read_line());
  std::fclose(lines);
  int status = 0;
  ::waitpid(child, &status, 0);
  return texts;
}

// Wherever a rank uses up its last file: while it connects, accepts or shares memory. It says why,
// and the others learn of it at once.
TEST(TcpFiles, TooManyAreNamedOnAllRanks) {
  for (rlim_t files = 0;; ++files) {
    ASSERT_LT(files, 50U);
    const auto texts = thrown_with_files_left(files);
    if (texts.front().empty()) {
      EXPECT_THAT(texts, Each(""));
      break;
    }
    EXPECT_THAT(texts, Each(HasSubstr("Too many open files"))) << files;
  }
}

// Not even if messages fill what lies between the two.
TEST(Tcp, AnAbortOvertakesMessages) {
  auto transports = tests::tcp_transports(2);
  const Bytes large(std::size_t{16} << 20);
  transports[0]->send(large, 1);
  const Ticket ticket = transports[0]->start({});
  transports[0]->abort("enough");
  EXPECT_THROW(transports[0]->wait(ticket, soon()), CommError);
  Bytes buffer(large.size());
  transports[1]->recv(buffer, 0, nullptr);
  EXPECT_THAT([&] { transports[1]->wait(transports[1]->start({}), Deadline::never()); },
              ThrowsMessage<CommError>(HasSubstr("rank 0 aborted: enough")));
}

// Each waits for its neighbour, and all for the one that does not come.
TEST(Tcp, ADeadlineNamesWhoHoldsTheOthersUp) {
  for (const auto way : {tests::TcpWay::shared, tests::TcpWay::inet}) {
    auto transports = tests::tcp_transports(4, way);
    const auto texts = thrown_on(4, [&](int rank) {
      if (rank == 2) return;
      Transport& transport = *transports[static_cast<std::size_t>(rank)];
      const Bytes mine(8);
      Bytes theirs(8);
      for (int round = 0; round < 4; ++round) {
        transport.send(mine, (rank + 1) % 4);
        transport.recv(theirs, (rank + 3) % 4, nullptr);
        transport.wait(transport.start({}), Deadline::after(std::chrono::milliseconds(500)));
      }
    });
    EXPECT_EQ(texts[2], "");
    for (const std::size_t rank : {0U, 1U, 3U})
      EXPECT_THAT(texts[rank], HasSubstr("rank 2, which does not answer"));
  }
}

// It makes progress, and has not come to the call of the others.
TEST(Tcp, ADeadlineNamesWhoComputes) {
  auto transports = tests::tcp_transports(2);
  std::atomic<bool> done = false;
  const auto texts = thrown_on(2, [&](int rank) {
    Bytes buffer(8);
    if (rank == 1) {
      while (!done) transports[1]->progress();
      return;
    }
    transports[0]->recv(buffer, 1, nullptr);
    try {
      transports[0]->wait(transports[0]->start({}), briefly());
    } catch (const Error&) {
      done = true;
      throw;
    }
  });
  EXPECT_THAT(texts[0], HasSubstr("rank 1, which waits for nobody"));
}

// None has sent what the other waits for.
TEST(Tcp, ADeadlineNamesRanksThatWaitForEachOther) {
  auto transports = tests::tcp_transports(3);
  const auto texts = thrown_on(3, [&](int rank) {
    Bytes buffer(8);
    Transport& transport = *transports[static_cast<std::size_t>(rank)];
    transport.recv(buffer, (rank + 1) % 3, nullptr);
    transport.wait(transport.start({}), briefly());
  });
  EXPECT_THAT(texts, testing::Contains(HasSubstr("a message between two of them is lost")));
}

TEST(Tcp, WhatALeavingRankHasSentStillArrives) {
  auto transports = tests::tcp_transports(3);
  const Bytes message(300000, std::byte{7});
  Bytes received(message.size()), more(1);
  std::thread sender([&] {
    transports[1]->send(message, 0);
    transports[1]->wait(transports[1]->start({}), soon());
    transports[1].reset();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  transports[0]->recv(received, 1, nullptr);
  transports[0]->wait(transports[0]->start({}), soon());
  EXPECT_EQ(received, message);
  sender.join();
  // The others go on without it, until they need it.
  for (const int rank : {0, 2}) {
    Transport& transport = *transports[static_cast<std::size_t>(rank)];
    if (rank == 0)
      transport.send(std::span(message).first(3), 2);
    else
      transport.recv(std::span(received).first(3), 0, nullptr);
    transport.wait(transport.start({}), soon());
  }
  transports[0]->recv(more, 1, nullptr);
  EXPECT_THAT([&] { transports[0]->wait(transports[0]->start({}), Deadline::never()); },
              ThrowsMessage<CommError>(HasSubstr("rank 1 has left")));
}

TEST(Tcp, MessagesTravelWhileTheyAreWritten) {
  auto transports = tests::tcp_transports(2);
  auto& sender = dynamic_cast<GrowingMessages&>(*transports[0]);
  auto& receiver = dynamic_cast<GrowingMessages&>(*transports[1]);
  const Bytes message(100000, std::byte{9});
  Bytes received(message.size());
  std::uint64_t written = 0, arrived = 0;
  sender.send_growing(message, 1, &written);
  receiver.recv_growing(received, 0, nullptr, &arrived);
  const Ticket sent = transports[0]->start({}), got = transports[1]->start({});
  for (const std::uint64_t next : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{60000},
                                   std::uint64_t{60000}, std::uint64_t{99999}}) {
    written = next;
    EXPECT_FALSE(transports[0]->test(sent, soon()));
    while (arrived < next) EXPECT_FALSE(transports[1]->test(got, soon()));
    EXPECT_EQ(arrived, next);
  }
  written = message.size();
  transports[0]->wait(sent, soon());
  transports[1]->wait(got, soon());
  EXPECT_EQ(arrived, message.size());
  EXPECT_EQ(received, message);
}

TEST(Tcp, ARankThatCannotListenEndsADuplicateOnAll) {
  std::vector<TcpPorts> ports;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < 3; ++rank) {
    ports.push_back(open_ports("lo"));
    addresses.push_back(ports.back().address.text());
  }
  const auto texts = thrown_on(3, [&](int rank) {
    auto links = connect_mesh(ports[static_cast<std::size_t>(rank)], rank, addresses, soon());
    const char* const interface = rank == 1 ? "unplugged" : "lo";
    const auto transport = tcp_transport_over(rank, {0, 0, 0}, std::move(links), make_bell(),
                                              {.options = {.interfaces = interface}});
    (void)transport->duplicate(soon());
  });
  EXPECT_THAT(texts, Each(HasSubstr("unplugged")));
}

TEST(Tcp, RanksOfOneMachineShareANode) {
  for (const auto& transport : tests::tcp_transports(3)) EXPECT_EQ(transport->node(), 0);
}

TEST(Tcp, TakesHostMemoryAlone) {
  const auto transports = tests::tcp_transports(1);
  EXPECT_FALSE(transports[0]->takes(Place::cuda));
  EXPECT_THROW((void)transports[0]->start({.place = Place::cuda}), UsageError);
}

}  // namespace
}  // namespace winnow::comm
