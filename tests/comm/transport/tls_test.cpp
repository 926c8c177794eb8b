// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// TLS over one socket, and what ranks say that cannot agree on it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
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
    sign("expired.pem", "20000101000000Z", "20010101000000Z");
    sign("early.pem", "21000101000000Z", "21010101000000Z");
    std::ofstream(path("authority.ext")) << "basicConstraints=CA:TRUE\n";
    run({"req -new -subj /CN=between -key ", path("theirs-rank.key"), " -out ",
         path("between.csr")});
    run({"x509 -req -days 3650 -CAcreateserial -in ", path("between.csr"), " -CA ",
         path("ours.pem"), " -CAkey ", path("ours.key"), " -extfile ", path("authority.ext"),
         " -out ", path("between.pem")});
    run({"x509 -req -days 3650 -CAcreateserial -in ", path("ours.csr"), " -CA ",
         path("between.pem"), " -CAkey ", path("theirs-rank.key"), " -out ", path("last.pem")});
    std::ofstream(path("chain.pem"))
        << std::ifstream(path("last.pem")).rdbuf() << std::ifstream(path("between.pem")).rdbuf();
    std::ofstream(path("both.pem"))
        << std::ifstream(path("ours.pem")).rdbuf() << std::ifstream(path("theirs.pem")).rdbuf();
    EXPECT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
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
  /// A certificate for the rank of our authority, from one date to another.
  void sign(const std::string& name, const std::string& from, const std::string& to) {
    std::ofstream(path("database"), std::ios::trunc).flush();
    std::ofstream(path("ca.cnf"), std::ios::trunc)
        << "[ca]\ndefault_ca=d\n[d]\ndatabase=" << path("database") << "\nserial=" << path("serial")
        << "\nnew_certs_dir=" << folder_.string()
        << "\ndefault_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n";
    run({"ca -batch -notext -create_serial -config ", path("ca.cnf"), " -in ", path("ours.csr"),
         " -cert ", path("ours.pem"), " -keyfile ", path("ours.key"), " -startdate ", from,
         " -enddate ", to, " -out ", path(name)});
  }
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
  TcpTls chain = ours;
  chain.certificate = certificates().path("chain.pem");
  for (const TcpTls& how : {kBySecret, ours, chain}) {
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
               theirs = certificates().of("theirs", "both");
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
  refusal(wrong, "' is no regular file");
  wrong.certificate = certificates().path("expired.pem");
  refusal(wrong, "expired.pem': certificate has expired");
  wrong.certificate = certificates().path("early.pem");
  refusal(wrong, "early.pem': certificate is not yet valid");
  wrong = certificates().of("theirs", "ours");
  refusal(wrong, "theirs-rank.pem' is not of the authority '");
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

// It may have no end, or never begin.
TEST(Tls, FilesAreRegular) {
  for (std::string TcpTls::*const file : {&TcpTls::certificate, &TcpTls::key, &TcpTls::authority}) {
    for (const std::string& path : {certificates().path("pipe"), std::string("/dev/zero")}) {
      TcpTls wrong = certificates().of("ours", "ours");
      wrong.*file = path;
      EXPECT_THAT([&] { TcpListener listener(TcpOptions{.interfaces = "lo", .tls = wrong}); },
                  ThrowsMessage<UsageError>(HasSubstr("'" + path + "' is no regular file")));
    }
  }
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

using Body = std::function<void(int rank, const TcpMeeting& meeting)>;

/// Lets three ranks meet; returns the error of each.
std::vector<std::string> thrown_by_ranks(const Body& body) {
  std::vector<std::string> texts(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const TcpMeeting meeting{.host = "localhost",
                               .rank = rank,
                               .size = 3,
                               .job = "files of TLS " + std::to_string(::getpid())};
      try {
        body(rank, meeting);
      } catch (const Error& error) {
        texts[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return texts;
}

// Without a deadline: the other ranks would wait for it.
TEST(Tls, AFileThatIsWrongOnOneRankIsAnErrorOnAll) {
  const TcpTls right = certificates().of("ours", "ours");
  std::vector<std::pair<TcpTls, std::string>> cases;
  for (const char* const key : {"theirs-rank.key", "none.key"}) {
    cases.emplace_back(right, std::string("TLS: the key '") + certificates().path(key));
    cases.back().first.key = certificates().path(key);
  }
  for (const char* const certificate : {"expired.pem", "early.pem"}) {
    cases.emplace_back(right,
                       std::string("TLS: the certificate '") + certificates().path(certificate));
    cases.back().first.certificate = certificates().path(certificate);
  }
  cases.emplace_back(certificates().of("theirs", "ours"), "theirs-rank.pem' is not of");
  for (const auto& [tls, text] : cases) {
    for (const int wrong : {0, 1}) {
      EXPECT_THAT(thrown_by_ranks([&](int rank, const TcpMeeting& meeting) {
                    (void)tcp_transport(meeting, Deadline::never(),
                                        {.secret = "s", .tls = rank == wrong ? tls : right});
                  }),
                  Each(AllOf(HasSubstr("rank " + std::to_string(wrong) + ": "), HasSubstr(text))));
    }
  }
}

TEST(Tls, ADuplicateNeedsNoFile) {
  const TcpTls files = certificates().of("ours", "ours");
  TcpTls copies = files;
  copies.key = certificates().path("copy.key");
  std::filesystem::copy_file(files.key, copies.key);
  std::barrier all_met(3);
  EXPECT_THAT(thrown_by_ranks([&](int rank, const TcpMeeting& meeting) {
                const auto first = tcp_transport(meeting, soon(), {.secret = "s", .tls = copies});
                all_met.arrive_and_wait();
                if (rank == 1) std::filesystem::remove(copies.key);
                all_met.arrive_and_wait();
                const auto second = first->duplicate(soon());
                (void)second->duplicate(soon());
              }),
              Each(""));
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
