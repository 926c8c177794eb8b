// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp/ports.hpp"

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>
#include <winnow/error.hpp>

namespace winnow::comm {
namespace {

/// At the first free port of the range; a Unix socket has no port.
Socket listen_within(const Endpoint& endpoint, PortRange range) {
  if (endpoint.family() == AF_UNIX) return listen_at(endpoint);
  for (int port = range.first; port < range.last; ++port) {
    if (port == range.left_out) continue;
    Socket socket = listen_at(endpoint.at_port(port));
    if (socket.is_open() || errno != EADDRINUSE) return socket;
  }
  return listen_at(endpoint.at_port(range.last));
}

}  // namespace

Credentials TcpPorts::credentials_at(const TcpAddress& listener) const {
  std::string purpose = "the listener ";
  purpose.append(reinterpret_cast<const char*>(listener.nonce.data()), listener.nonce.size());
  return credentials.derive(purpose);
}

TcpPorts open_ports(std::string_view interfaces, Reach reach, PortRange range) {
  TcpPorts ports{.address = {.nonce = TcpAddress::new_nonce(),
                             .machine = TcpAddress::this_machine(),
                             .endpoints = {}},
                 .sockets = {},
                 .credentials = Credentials(),
                 .tls = TlsContext()};
  int code = 0;
  for (const Endpoint& endpoint : local_endpoints(interfaces, reach)) {
    Socket socket = listen_within(endpoint, range);
    if (!socket.is_open()) {
      code = errno;
      if (has_too_many_files(code)) fail_for_files("listening for ranks", code);
      continue;
    }
    ports.address.endpoints.push_back(Endpoint::of(socket));
    ports.sockets.push_back(std::move(socket));
  }
  const bool reaches_hosts = std::ranges::any_of(
      ports.address.endpoints, [](const Endpoint& one) { return one.family() != AF_UNIX; });
  if (ports.sockets.empty() || (range.first > 0 && !reaches_hosts)) {
    std::string where = "a TcpListener can listen nowhere";
    if (range.first > 0)
      where += " in ports " + std::to_string(range.first) + " to " + std::to_string(range.last);
    WINNOW_EXPECTS(range.first == 0 || code != EADDRINUSE,
                   where +
                       ", which others have: name more in WINNOW_TCP_PORTS or "
                       "TcpOptions::ports, one for each rank of a host at least");
    fail_system(where, code);
  }
  return ports;
}

}  // namespace winnow::comm
