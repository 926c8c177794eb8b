// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>
#include <winnow/tcp.hpp>
#include <winnow/transport.hpp>

#include "comm/transport/tcp/mesh.hpp"
#include "comm/transport/tls.hpp"

namespace winnow::comm {

/// The state that a transport shares with its duplicates.
struct TcpSettings {
  TcpOptions options = {};
  Reach reach = Reach::hosts;
  std::optional<TlsContext> tls = {};  // as the options say; nothing: not loaded yet
  int meeting_port = 0;                // at which ranks do not listen for each other; 0: at any
};

/// Listens as the settings say; throws UsageError if they are wrong.
TcpPorts open_ports(const TcpSettings& settings);
/// Connects with the ranks at `addresses`, which are those of a TcpListener::connect. Collective.
std::unique_ptr<Transport> tcp_transport_at(TcpPorts ports, int rank,
                                            std::span<const std::string> addresses,
                                            const TcpSettings& settings, Deadline deadline);
/// A new TCP transport of the ranks of `other`, which passes their addresses and takes host memory.
/// Collective.
std::unique_ptr<Transport> tcp_transport_of(Transport& other, const TcpSettings& settings,
                                            Deadline deadline);
/// The transport of rank `rank` over its connections; `nodes[r]` is the node of rank r. `bell`: the
/// bell of its shared memory.
std::unique_ptr<Transport> tcp_transport_over(int rank, const std::vector<int>& nodes,
                                              std::vector<TcpLink> links, Socket bell,
                                              const TcpSettings& settings);
/// A bell for share_memory and then for tcp_transport_over. Throws CommError.
Socket make_bell();

}  // namespace winnow::comm
