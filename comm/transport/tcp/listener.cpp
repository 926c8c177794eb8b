// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/tcp.hpp>

#include "comm/transport/tcp/mesh.hpp"
#include "comm/transport/tcp/share.hpp"
#include "comm/transport/tcp/tcp.hpp"
#include "kernels/exec/uncaught.hpp"

namespace winnow {
namespace {

constexpr double kMostSeconds = 1e6;

}  // namespace

TcpOptions TcpOptions::from_environment() {
  TcpOptions options;
  if (const char* const names = std::getenv("WINNOW_SOCKET_IFNAME")) options.interfaces = names;
  return options;
}

TcpListener::TcpListener(const TcpOptions& options) : options_(options) {
  WINNOW_EXPECTS(options.host_timeout >= 1 && options.host_timeout <= kMostSeconds,
                 "TcpOptions::host_timeout of " + std::to_string(options.host_timeout) +
                     " s: must be from 1 to 1000000");
  ports_ = std::make_unique<comm::TcpPorts>(comm::open_ports(options.interfaces));
  address_ = ports_->address.text();
}

TcpListener::TcpListener(TcpListener&&) noexcept = default;
TcpListener& TcpListener::operator=(TcpListener&&) noexcept = default;
TcpListener::~TcpListener() = default;

std::unique_ptr<Transport> TcpListener::connect(int rank, std::span<const std::string> addresses,
                                                Deadline deadline) {
  WINNOW_EXPECTS(ports_ != nullptr, "a TcpListener connects once: make a new one");
  kernels::note_rank(rank);
  const auto ports = std::exchange(ports_, nullptr);
  std::vector<comm::TcpLink> links = comm::connect_mesh(*ports, rank, addresses, deadline);
  comm::Socket bell = comm::make_bell();
  comm::share_memory(links, bell, deadline);
  std::vector<std::uint64_t> machines;
  std::vector<int> nodes;
  for (const std::string& text : addresses) {
    machines.push_back(comm::TcpAddress::parse(text).machine);
    const auto first = std::ranges::find(machines, machines.back());
    nodes.push_back(static_cast<int>(first - machines.begin()));
  }
  return comm::tcp_transport_over(rank, nodes, std::move(links), std::move(bell), options_);
}

std::unique_ptr<Transport> comm::tcp_transport_of(Transport& other, const TcpOptions& options,
                                                  Deadline deadline) {
  TcpListener listener(options);
  std::string mine = listener.address();
  const std::uint64_t length = mine.size();
  std::vector<std::uint64_t> lengths(static_cast<std::size_t>(other.size()));
  other.all_gather({}, std::as_bytes(std::span(&length, 1)),
                   std::as_writable_bytes(std::span(lengths)), deadline);
  const std::uint64_t longest = std::ranges::max(lengths);
  mine.resize(longest);
  std::string all(longest * lengths.size(), ' ');
  other.all_gather({}, std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)),
                   deadline);
  std::vector<std::string> addresses;
  for (std::size_t rank = 0; rank < lengths.size(); ++rank)
    addresses.push_back(all.substr(rank * longest, lengths[rank]));
  return listener.connect(other.rank(), addresses, deadline);
}

}  // namespace winnow
