// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
//
// From listening sockets and addresses to a transport.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>
#include <winnow/error.hpp>

#include "comm/transport/failure.hpp"
#include "comm/transport/gather_values.hpp"
#include "comm/transport/tcp/mesh.hpp"
#include "comm/transport/tcp/secure.hpp"
#include "comm/transport/tcp/share.hpp"
#include "comm/transport/tcp/tcp.hpp"
#include "topology/words.hpp"

namespace winnow::comm {
namespace {

constexpr double kMostSeconds = 1e6;

/// Once for each job: on rank 0.
void warn_of_strangers(const TcpPorts& ports, int rank, std::size_t size) {
  static std::atomic<bool> warned = false;
  if (rank != 0 || size == 1 || ports.credentials.are_secret()) return;
  if (std::ranges::all_of(ports.address.endpoints, &Endpoint::is_local)) return;
  if (warned.exchange(true)) return;
  std::fputs(
      "winnow: warning: this job listens without a secret: whoever reaches its ports may join it. "
      "Give "
      "all ranks one by WINNOW_TCP_SECRET_FILE, or let them listen on loopback alone if they share "
      "a "
      "machine: WINNOW_SOCKET_IFNAME=lo\n",
      stderr);
}

/// The number of the first rank of each rank's machine.
std::vector<int> nodes_of(std::span<const std::string> addresses) {
  std::vector<std::uint64_t> machines;
  std::vector<int> nodes;
  for (const std::string& text : addresses) {
    machines.push_back(TcpAddress::parse(text).machine);
    const auto first = std::ranges::find(machines, machines.back());
    nodes.push_back(static_cast<int>(first - machines.begin()));
  }
  return nodes;
}

}  // namespace

TcpPorts open_ports(const TcpSettings& settings) {
  const TcpOptions& options = settings.options;
  WINNOW_EXPECTS(options.host_timeout >= 1 && options.host_timeout <= kMostSeconds,
                 "TcpOptions::host_timeout of " + number_text(options.host_timeout) +
                     " s: must be from 1 to 1000000");
  const Credentials credentials(options.secret);
  WINNOW_EXPECTS(options.tls.mode != TcpTls::Mode::secret || credentials.are_secret(),
                 "TLS by the job's secret needs one: TcpOptions::secret, WINNOW_TCP_SECRET or "
                 "WINNOW_TCP_SECRET_FILE");
  const TlsContext tls = settings.tls ? *settings.tls : TlsContext(options.tls);
  const PortRange range = PortRange::parse(options.ports).without(settings.meeting_port);
  TcpPorts ports = open_ports(options.interfaces, settings.reach, range);
  ports.credentials = credentials;
  ports.tls = tls;
  return ports;
}

std::unique_ptr<Transport> tcp_transport_at(TcpPorts ports, int rank,
                                            std::span<const std::string> addresses,
                                            const TcpSettings& settings, Deadline deadline) {
  warn_of_strangers(ports, rank, addresses.size());
  std::vector<TcpLink> links = connect_mesh(ports, rank, addresses, deadline);
  try {
    secure(links, rank, ports.tls, deadline);
    Socket bell = make_bell();
    share_memory(links, bell, deadline);
    TcpSettings kept = settings;  // a duplicate needs no file again, which may be gone
    kept.tls = ports.tls;
    return tcp_transport_over(rank, nodes_of(addresses), std::move(links), std::move(bell), kept);
  } catch (const Error& error) {  // of this rank alone, perhaps: others have no other way to know
    for (TcpLink& link : links)
      if (link.control.is_open()) (void)link.control.send(NoteKind::abort, note_of(error));
    throw;
  }
}

std::unique_ptr<Transport> tcp_transport_of(Transport& other, const TcpSettings& settings,
                                            Deadline deadline) {
  TcpPorts ports = open_ports(settings);
  std::string mine = ports.address.text();
  const auto lengths = gather_values(other, std::uint64_t{mine.size()}, deadline);
  const std::uint64_t longest = std::ranges::max(lengths);
  mine.resize(longest);
  std::string all(longest * lengths.size(), ' ');
  other.all_gather({}, std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)),
                   deadline);
  std::vector<std::string> addresses;
  for (std::size_t rank = 0; rank < lengths.size(); ++rank)
    addresses.push_back(all.substr(rank * longest, lengths[rank]));
  return tcp_transport_at(std::move(ports), other.rank(), addresses, settings, deadline);
}

}  // namespace winnow::comm
