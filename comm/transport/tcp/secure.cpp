// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp/secure.hpp"

#include <poll.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <winnow/error.hpp>

#include "comm/transport/failure.hpp"
#include "comm/transport/tcp/endpoint.hpp"

namespace winnow::comm {
namespace {

constexpr int kLookAgain = 100;  // milliseconds

struct Handshake {
  int peer;
  TlsSession* session;
  int socket;
};

std::vector<Handshake> begin(std::span<TcpLink> links, int rank, const TlsContext& tls) {
  std::vector<Handshake> begun;
  for (int peer = 0; peer < static_cast<int>(links.size()); ++peer) {
    TcpLink& link = links[static_cast<std::size_t>(peer)];
    const auto end = rank < peer ? TlsSession::End::server : TlsSession::End::client;
    const std::array connections{std::pair(&link.data, "TLS of messages"),
                                 std::pair(&link.control.connection(), "TLS of notes")};
    for (const auto& [connection, purpose] : connections) {
      if (!connection->is_open() || Endpoint::of(connection->socket()).family() == AF_UNIX)
        continue;
      const Digest key = link.control.derive(purpose).prove({});
      begun.push_back({.peer = peer,
                       .session = &connection->begin_tls(tls, end, key),
                       .socket = connection->socket().get()});
    }
  }
  return begun;
}

}  // namespace

void secure(std::span<TcpLink> links, int rank, const TlsContext& tls, Deadline deadline) {
  if (!tls.is_on()) return;
  std::vector<Handshake> left = begin(links, rank, tls);
  std::vector<pollfd> polled;
  for (;;) {
    polled.clear();
    std::erase_if(left, [&](const Handshake& one) {
      const TlsSession::Shake shake = one.session->shake();
      if (shake == TlsSession::Shake::failed)
        throw CommError("the handshake with rank " + std::to_string(one.peer) +
                        " fails: " + one.session->problem());
      const bool wants_write = shake == TlsSession::Shake::wants_write;
      if (shake != TlsSession::Shake::done)
        polled.push_back({.fd = one.socket,
                          .events = static_cast<short>(wants_write ? POLLOUT : POLLIN),
                          .revents = 0});
      return shake == TlsSession::Shake::done;
    });
    if (left.empty()) return;
    if (deadline.passed())
      fail_at_deadline("during the TLS handshake with rank " + std::to_string(left.front().peer));
    ::poll(polled.data(), polled.size(), kLookAgain);
  }
}

}  // namespace winnow::comm
