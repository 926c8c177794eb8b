// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "comm/transport/credentials.hpp"
#include "comm/transport/tcp/address.hpp"
#include "comm/transport/tcp/port_range.hpp"
#include "comm/transport/tls.hpp"

namespace winnow::comm {

/// A rank's listening sockets and their address, the job's credentials, and how the rank encrypts.
struct TcpPorts {
  TcpAddress address;
  std::vector<Socket> sockets;
  Credentials credentials;
  TlsContext tls;

  /// The credentials of a rank's listener: whoever has its address has them, and has the secret if
  /// there is one.
  Credentials credentials_at(const TcpAddress& listener) const;
};

/// Listens at a free port, one of the range, of every address of these interfaces (as
/// local_endpoints names them). The credentials are open.
TcpPorts open_ports(std::string_view interfaces, Reach reach = Reach::hosts, PortRange range = {});

}  // namespace winnow::comm
