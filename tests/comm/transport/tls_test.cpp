// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// TLS over one socket, and what ranks say that cannot agree on it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/tcp.hpp>

#include "comm/transport/credentials.hpp"
#include "comm/transport/tcp/connection.hpp"
#include "tests/harness/tcp_ranks.hpp"

namespace winnow::comm {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;
using Bytes = std::vector<std::byte>;

Deadline soon() {
  return Deadline::after(std::chrono::seconds(60));
}

/// The files of two authorities and of a rank that each has signed, which OpenSSL's program makes.
class Certificates {
 public:
  Certificates() {
    folder_ = std::filesystem::temp_directory_path() / "winnow_tls_XXXXXX";
    std::string name = folder_.string();
    folder_ = ::mkdtemp(name.data());
    for (const std::string authority : {"ours", "theirs"}) {
      const auto file = [&](const char* end) { return path(authority + end); };
      const std::string key = " -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ";
      run({"req -x509 -days 3650 -subj /CN=", authority, key, file(".key"), " -out ",
           file(".pem")});
      run({"req -subj /CN=rank", key, file("-rank.key"), " -out ", file(".csr")});
      run({"x509 -req -days 3650 -CAcreateserial -in ", file(".csr"), " -CA ", file(".pem"),
           " -CAkey ", file(".key"), " -out ", file("-rank.pem")});
    }
    run({"pkey -aes256 -passout pass:secret -in ", path("ours-rank.key"), " -out ",
         path("encrypted.key")});
  }
  Certificates(const Certificates&) = delete;
  Certificates& operator=(const Certificates&) = delete;
  ~Certificates() { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  /// A rank whose certificate `authority` has signed, and that trusts `trusts`.
  TcpTls of(const std::string& authority, const std::string& trusts) const {
    return {.mode = TcpTls::Mode::certificates,
            .certificate = path(authority + "-rank.pem"),
            .key = path(authority + "-rank.key"),
            .authority = path(trusts + ".pem")};
  }

 private:
  static void run(std::initializer_list<std::string_view> words) {
    std::string line = "openssl ";
    for (const std::string_view word : words) line += word;
    ASSERT_EQ(std::system(line.append(" >/dev/null 2>&1").c_str()), 0) << line;
  }
  std::filesystem::path folder_;
};

const Certificates& certificates() {
  static const Certificates made;
  return made;
}

/// Two ends of a connection in this process.
struct Pair {
  std::array<Connection, 2> ends;
  std::array<TlsSession*, 2> sessions{};

  explicit Pair(int bytes = 0) {
    std::array<int, 2> sockets{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets.data()), 0);
    for (std::size_t i = 0; i < 2; ++i) {
      if (bytes > 0) ::setsockopt(sockets[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
      ends[i] = Connection(Socket(sockets[i]));
    }
  }
  /// Runs the handshake. Returns the error of each end, empty if it succeeded.
  std::array<std::string, 2> shake(const std::array<TcpTls, 2>& how,
                                   const std::array<Digest, 2>& keys) {
    std::array<std::string, 2> said;
    std::array<bool, 2> over{};
    for (std::size_t i = 0; i < 2; ++i) {
      sessions[i] = &ends[i].begin_tls(
          TlsContext(how[i]), i == 0 ? TlsSession::End::server : TlsSession::End::client, keys[i]);
    }
    for (int round = 0; round < 100; ++round) {
      for (std::size_t i = 0; i < 2; ++i) {
        if (over[i]) continue;
        const TlsSession::Shake shake = sessions[i]->shake();
        over[i] = shake == TlsSession::Shake::done || shake == TlsSession::Shake::failed;
        if (shake == TlsSession::Shake::failed) {
          said[i] = sessions[i]->problem();
          ends[i].close();
        }
      }
    }
    EXPECT_TRUE(over[0] && over[1]);
    return said;
  }
};

const TcpTls kBySecret{.mode = TcpTls::Mode::secret};
const Digest kKey = Credentials("a secret").prove({});
const std::array kSameKey{kKey, kKey};

/// Sends pieces of odd sizes from one end to the other, in both directions at once.
void expect_passes(Pair& pair, std::size_t bytes) {
  std::mt19937 random(1);
  std::array<Bytes, 2> sent{Bytes(bytes), Bytes(bytes)}, received{Bytes(bytes), Bytes(bytes)};
  for (Bytes& all : sent)
    for (std::byte& one : all) one = static_cast<std::byte>(random());
  std::array<std::size_t, 2> written{}, read{};
  while (read[0] < bytes || read[1] < bytes) {
    for (std::size_t i = 0; i < 2; ++i) {
      const std::size_t cut = std::min<std::size_t>(bytes - written[i], random() % 40000);
      const std::array pieces{iovec{sent[i].data() + written[i], cut},
                              iovec{sent[i].data() + written[i] + cut, bytes - written[i] - cut}};
      const ::ssize_t took = pair.ends[i].write(pieces);
      ASSERT_TRUE(took >= 0 || errno == EAGAIN) << pair.ends[i].problem_of(errno);
      if (took > 0) written[i] += static_cast<std::size_t>(took);
      const std::size_t most = std::min<std::size_t>(bytes - read[i], random() % 50000);
      const std::array space{iovec{received[i].data() + read[i], most / 3},
                             iovec{received[i].data() + read[i] + most / 3, most - most / 3}};
      const ::ssize_t got = pair.ends[i].read(space);
      ASSERT_TRUE(got >= 0 || errno == EAGAIN) << pair.ends[i].problem_of(errno);
      if (got > 0) read[i] += static_cast<std::size_t>(got);
    }
  }
  EXPECT_EQ(received[0], sent[1]);
  EXPECT_EQ(received[1], sent[0]);
}

TEST(Tls, CarriesBytesByAKeyAndByCertificates) {
  const TcpTls ours = certificates().of("ours", "ours");
  for (const TcpTls& how : {kBySecret, ours}) {
    for (const int buffer : {0, 4096}) {
      Pair pair(buffer);
      EXPECT_THAT(pair.shake({how, how}, kSameKey), Each(""));
      expect_passes(pair, 300000);
    }
  }
}

TEST(Tls, NothingIsReadable) {
  Pair pair;
  ASSERT_THAT(pair.shake({kBySecret, kBySecret}, kSameKey), Each(""));
  std::string text(5000, 'g');
  const iovec piece{text.data(), text.size()};
  ASSERT_EQ(pair.ends[0].write({&piece, 1}), 5000);
  std::string seen(10000, '\0');
  const ::ssize_t got = ::recv(pair.ends[1].socket().get(), seen.data(), seen.size(), MSG_PEEK);
  ASSERT_GT(got, 5000);
  seen.resize(static_cast<std::size_t>(got));
  EXPECT_THAT(seen, Not(HasSubstr("ggg")));
}

// A record of which one bit has changed on the way is none.
TEST(Tls, ChangedBytesEndTheConnection) {
  Pair pair, wire;
  ASSERT_THAT(pair.shake({kBySecret, kBySecret}, kSameKey), Each(""));
  std::array<char, 100> text{};
  const iovec piece{text.data(), text.size()};
  ASSERT_EQ(pair.ends[0].write({&piece, 1}), 100);
  const int there = pair.ends[1].socket().get();
  std::string record(1000, '\0');
  const ::ssize_t got = ::recv(there, record.data(), record.size(), 0);
  record.resize(static_cast<std::size_t>(std::max<::ssize_t>(0, got)));
  record[50] = static_cast<char>(record[50] ^ 1);
  const int here = pair.ends[0].socket().get();
  ASSERT_EQ(::send(here, record.data(), record.size(), 0), got);
  EXPECT_EQ(pair.ends[1].read({&piece, 1}), -1);
  EXPECT_EQ(errno, EPROTO);
  EXPECT_THAT(pair.ends[1].problem_of(EPROTO), HasSubstr("bad record mac"));
}

TEST(Tls, StrangersGetNoHandshake) {
  const auto says = [](const TcpTls& server, const TcpTls& client, const Digest& key) {
    Pair pair;
    return pair.shake({server, client}, {kKey, key});
  };
  const Digest other = Credentials("another secret").prove({});
  EXPECT_THAT(says(kBySecret, kBySecret, other), Each(HasSubstr("TLS: ")));
  const TcpTls ours = certificates().of("ours", "ours"),
               theirs = certificates().of("theirs", "ours");
  EXPECT_THAT(says(theirs, ours, kKey)[1], HasSubstr("certificate verify failed"));
  EXPECT_THAT(says(ours, theirs, kKey)[0], HasSubstr("certificate verify failed"));
  EXPECT_THAT(says(ours, kBySecret, kKey)[0], Not(""));
  EXPECT_THAT(says(kBySecret, ours, kKey)[0], Not(""));
}

TEST(Tls, AnEndThatIsGoneIsNoSignal) {
  Pair pair;
  ASSERT_THAT(pair.shake({kBySecret, kBySecret}, kSameKey), Each(""));
  pair.ends[1].close();
  char one = 'x';
  const iovec piece{&one, 1};
  ::ssize_t written = 0;
  for (int i = 0; i < 3 && written >= 0; ++i) written = pair.ends[0].write({&piece, 1});
  EXPECT_EQ(written, -1);
  EXPECT_EQ(errno, EPIPE);
  EXPECT_EQ(pair.ends[0].read({&piece, 1}), 0);
}

TEST(Tls, FilesAreNamedThatDoNotServe) {
  const auto refusal = [](const TcpTls& how, const char* text) {
    EXPECT_THAT([&] { TcpListener listener(TcpOptions{.interfaces = "lo", .tls = how}); },
                ThrowsMessage<UsageError>(HasSubstr(text)));
  };
  const TcpTls right = certificates().of("ours", "ours");
  TcpTls wrong = right;
  wrong.certificate = certificates().path("none.pem");
  refusal(wrong, "none.pem': No such file or directory");
  wrong.certificate = certificates().path("");
  refusal(wrong, "is a directory");
  wrong = right;
  wrong.key = certificates().path("encrypted.key");
  refusal(wrong, "encrypted.key' is encrypted");  // nobody is asked for the passphrase
  wrong = right;
  wrong.key = certificates().path("theirs-rank.key");
  refusal(wrong, "theirs-rank.key");
  wrong = right;
  wrong.authority = certificates().path("ours-rank.key");
  refusal(wrong, "ours-rank.key");
  wrong = right;
  wrong.authority.clear();
  refusal(wrong, "authority");
  refusal(kBySecret, "WINNOW_TCP_SECRET");
  wrong = right;
  wrong.mode = TcpTls::Mode::off;
  refusal(wrong, "not by certificates");
}

// Otherwise one would wait for a handshake, and the other for messages.
TEST(Tls, RanksThatDifferAllSaySo) {
  std::vector<TcpListener> listeners;
  listeners.emplace_back(TcpOptions{.interfaces = "lo", .secret = "s"});
  listeners.emplace_back(TcpOptions{.interfaces = "lo", .secret = "s", .tls = kBySecret});
  const std::vector addresses{listeners[0].address(), listeners[1].address()};
  std::array<std::string, 2> texts;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto at = static_cast<std::size_t>(rank);
      try {
        (void)listeners[at].connect(rank, addresses, soon());
      } catch (const UsageError& error) {
        texts[at] = error.what();
      } catch (const Error&) {
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(texts, Each(AllOf(HasSubstr("differ in TLS"), Not(HasSubstr("usage error")))));
}

// Without a deadline: the other ranks would wait for it.
TEST(Tls, AFileThatIsWrongOnOneRankIsAnErrorOnAll) {
  for (const int wrong : {0, 1}) {
    for (const bool exists : {false, true}) {
      const std::string file = certificates().path(exists ? "theirs-rank.key" : "none.key");
      std::array<std::string, 3> texts;
      std::vector<std::thread> threads;
      for (int rank = 0; rank < 3; ++rank) {
        threads.emplace_back([&, rank] {
          TcpOptions options{
              .interfaces = "", .secret = "s", .tls = certificates().of("ours", "ours")};
          if (rank == wrong) options.tls.key = file;
          const TcpMeeting meeting{.host = "localhost",
                                   .rank = rank,
                                   .size = 3,
                                   .job = "files of TLS " + std::to_string(::getpid())};
          try {
            (void)tcp_transport(meeting, Deadline::never(), options);
          } catch (const UsageError& error) {
            texts[static_cast<std::size_t>(rank)] = error.what();
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      EXPECT_THAT(texts, Each(AllOf(HasSubstr("rank " + std::to_string(wrong) + ": TLS: the key"),
                                    HasSubstr(file))));
    }
  }
}

TEST(Tls, TheEnvironmentNamesIt) {
  const auto with = [](const std::vector<std::pair<const char*, const char*>>& variables) {
    for (const auto& [name, value] : variables) ::setenv(name, value, 1);
    std::string text;
    TcpTls tls;
    try {
      tls = TcpOptions::from_environment().tls;
    } catch (const UsageError& error) {
      text = error.what();
    }
    for (const auto& [name, value] : variables) ::unsetenv(name);
    return std::pair(tls, text);
  };
  EXPECT_EQ(with({}).first.mode, TcpTls::Mode::off);
  EXPECT_EQ(with({{"WINNOW_TCP_TLS", "secret"}}).first.mode, TcpTls::Mode::secret);
  EXPECT_THAT(with({{"WINNOW_TCP_TLS", "on"}}).second, HasSubstr("off, secret or certificates"));
  EXPECT_THAT(with({{"WINNOW_TCP_TLS", ""}}).second, HasSubstr("off, secret or certificates"));
  const TcpTls tls = with({{"WINNOW_TCP_TLS", "certificates"},
                           {"WINNOW_TCP_TLS_CERTIFICATE", "c"},
                           {"WINNOW_TCP_TLS_KEY", "k"},
                           {"WINNOW_TCP_TLS_AUTHORITY", "a"}})
                         .first;
  EXPECT_EQ(tls.mode, TcpTls::Mode::certificates);
  EXPECT_EQ(tls.certificate + tls.key + tls.authority, "cka");
}

}  // namespace
}  // namespace winnow::comm
