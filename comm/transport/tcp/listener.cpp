// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <span>
#include <string>
#include <utility>
#include <winnow/error.hpp>
#include <winnow/tcp.hpp>

#include "comm/transport/tcp/mesh.hpp"
#include "comm/transport/tcp/tcp.hpp"
#include "kernels/exec/uncaught.hpp"

namespace winnow {

TcpListener::TcpListener(const TcpOptions& options)
    : options_(options),
      ports_(std::make_unique<comm::TcpPorts>(
          comm::open_ports(comm::TcpSettings{.options = options}))) {
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
  return comm::tcp_transport_at(std::move(*ports), rank, addresses, {.options = options_},
                                deadline);
}

}  // namespace winnow
