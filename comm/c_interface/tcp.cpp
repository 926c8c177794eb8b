// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>
#include <winnow/tcp.hpp>

#include "comm/c_interface/given.hpp"
#include "comm/c_interface/status.hpp"
#include "comm/c_interface/text.hpp"
#include "comm/c_interface/transport.hpp"
#include "comm/transport/crypto.hpp"
#include "comm/transport/tcp/environment.hpp"
#include "comm/transport/tcp/meeting.hpp"
#include "comm/transport/tcp/rank_failure.hpp"
#include "comm/transport/tls.hpp"

using winnow::comm::deadline_of;
using winnow::comm::expect_given;
using winnow::comm::guarded;

struct winnow_tcp_listener {
  winnow::TcpListener listener;
};

namespace {

/// A process has fewer sockets; what an array of so many claims to hold is not read.
constexpr int kMostRanks = 1 << 16;

void expect_size(int size) {
  WINNOW_EXPECTS(
      size >= 1 && size <= kMostRanks,
      "size is " + std::to_string(size) + ": must be from 1 to " + std::to_string(kMostRanks));
}

/// A number of the caller's that another thread may change.
const std::atomic<std::int32_t>* stop_of(const winnow_tcp_options* given) {
  using Stop = std::atomic<std::int32_t>;
  static_assert(sizeof(Stop) == sizeof(std::int32_t) && Stop::is_always_lock_free);
  if (given == nullptr) return nullptr;
  return reinterpret_cast<const Stop*>(winnow::comm::read(given, "options").stop);
}

winnow::TcpMeeting meeting_of(const winnow_tcp_meeting* given) {
  if (given == nullptr) return winnow::TcpMeeting::from_environment();
  const winnow_tcp_meeting known = winnow::comm::read(given, "meeting");
  expect_size(known.size);
  winnow::TcpMeeting meeting{
      .host = std::string(winnow::comm::text_of(&expect_given(known.host, "host"), "host")),
      .rank = known.rank,
      .size = known.size};
  if (known.port != 0) meeting.port = known.port;
  meeting.job = winnow::comm::text_of(known.job, "job");
  return meeting;
}

/// As winnow::comm::secret_of_environment.
std::string secret_of(const winnow_tcp_options* given) {
  const char* const named =
      given == nullptr ? nullptr : winnow::comm::read(given, "options").secret;
  if (named == nullptr) return winnow::comm::secret_of_environment();
  std::string secret(winnow::comm::chars_of(named, "secret"));
  WINNOW_EXPECTS(!secret.empty(), "the secret is empty: pass NULL for none");
  return secret;
}

/// As winnow::comm::read_environment.
void read_options(const winnow_tcp_options* given, winnow::TcpOptions& options) {
  winnow::comm::read_environment(options);
  if (given == nullptr) return;
  const winnow_tcp_options known = winnow::comm::read(given, "options");
  if (known.interfaces != nullptr)
    options.interfaces = winnow::comm::text_of(known.interfaces, "interfaces");
  if (known.tls != nullptr)
    options.tls = {.mode =
                       winnow::comm::tls_mode_of(winnow::comm::text_of(known.tls, "tls"), "tls")};
  const std::array files{
      std::tuple("tls_certificate", known.tls_certificate, &options.tls.certificate),
      std::tuple("tls_key", known.tls_key, &options.tls.key),
      std::tuple("tls_authority", known.tls_authority, &options.tls.authority)};
  for (const auto& [name, path, file] : files)
    if (path != nullptr) *file = winnow::comm::text_of(path, name);
  if (known.host_timeout != 0) options.host_timeout = known.host_timeout;
}

winnow::TcpOptions options_of(const winnow_tcp_options* given) {
  winnow::TcpOptions options{.secret = secret_of(given)};
  read_options(given, options);
  return options;
}

}  // namespace

extern "C" {

int winnow_tcp_listen(const char* interfaces, winnow_tcp_listener** listener) {
  const winnow_tcp_options options{.struct_bytes = sizeof options, .interfaces = interfaces};
  return winnow_tcp_listen_with(&options, listener);
}

int winnow_tcp_listen_with(const winnow_tcp_options* options, winnow_tcp_listener** listener) {
  return guarded([&] {
    auto& made = expect_given(listener, "listener");
    made = new winnow_tcp_listener{winnow::TcpListener(options_of(options))};
  });
}

int winnow_tcp_can_have_secret(void) {
  return winnow::comm::has_crypto() ? 1 : 0;
}

const char* winnow_tcp_address(const winnow_tcp_listener* listener) {
  return winnow::comm::answer_or<const char*>(
      nullptr, [&] { return expect_given(listener, "listener").listener.address().c_str(); });
}

int winnow_tcp_connect(winnow_tcp_listener* listener, int rank, int size,
                       const char* const* addresses, double seconds, winnow_transport** transport) {
  return guarded([&] {
    winnow::TcpListener& mine = expect_given(listener, "listener").listener;
    expect_size(size);
    WINNOW_EXPECTS(rank >= 0 && rank < size, "rank is " + std::to_string(rank) +
                                                 ": must be from 0 to size - 1, which is " +
                                                 std::to_string(size - 1));
    auto& made = expect_given(transport, "transport");
    std::vector<std::string> all;
    for (const char* const address :
         winnow::comm::expect_array(addresses, static_cast<std::uint64_t>(size), "addresses")) {
      all.emplace_back(
          winnow::comm::text_of(&expect_given(address, "one of addresses"), "one of addresses"));
    }
    made = new winnow_transport{mine.connect(rank, all, deadline_of(seconds))};
  });
}

void winnow_tcp_listener_destroy(winnow_tcp_listener* listener) {
  delete listener;
}

int winnow_tcp_transport(const winnow_tcp_meeting* meeting, double seconds,
                         winnow_transport** transport) {
  return winnow_tcp_transport_with(meeting, nullptr, seconds, transport);
}

int winnow_tcp_transport_with(const winnow_tcp_meeting* meeting, const winnow_tcp_options* options,
                              double seconds, winnow_transport** transport) {
  return guarded([&] {
    auto& made = expect_given(transport, "transport");
    const auto read = [&](winnow::TcpOptions& mine) { read_options(options, mine); };
    winnow::TcpMeeting where = meeting_of(meeting);
    where.stop = stop_of(options);
    const std::string secret =
        winnow::comm::named_by_rank(where.rank, [&] { return secret_of(options); });
    made = new winnow_transport{
        winnow::comm::tcp_transport_by(where, deadline_of(seconds), {.secret = secret}, read)};
  });
}

}  // extern "C"
