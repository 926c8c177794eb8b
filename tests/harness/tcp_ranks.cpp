// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/harness/tcp_ranks.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <string>
#include <thread>

#include "comm/transport/tcp/mesh.hpp"
#include "comm/transport/tcp/secure.hpp"
#include "comm/transport/tcp/share.hpp"
#include "comm/transport/tcp/tcp.hpp"

namespace winnow::tests {
namespace {

Deadline soon() {
  return Deadline::after(std::chrono::seconds(60));
}

}  // namespace

std::vector<std::unique_ptr<Transport>> tcp_transports(int ranks, TcpWay way,
                                                       const std::string& secret) {
  comm::TcpSettings settings{.options = {.interfaces = "lo", .secret = secret}};
  if (way == TcpWay::tls) {
    settings.options.tls.mode = TcpTls::Mode::secret;
    if (secret.empty()) settings.options.secret = "a secret of tests";
  }
  std::vector<comm::TcpPorts> ports;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < ranks; ++rank) {
    ports.push_back(comm::open_ports(settings));
    comm::TcpAddress& address = ports.back().address;
    const auto is_unix = [](const comm::Endpoint& at) { return at.family() == AF_UNIX; };
    if (way == TcpWay::inet || way == TcpWay::tls) std::erase_if(address.endpoints, is_unix);
    addresses.push_back(address.text());
  }
  const std::vector<int> nodes(ports.size());
  std::vector<std::unique_ptr<Transport>> made(ports.size());
  std::vector<std::exception_ptr> errors(ports.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < made.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto number = static_cast<int>(rank);
        auto links = comm::connect_mesh(ports[rank], number, addresses, soon());
        comm::secure(links, number, ports[rank].tls, soon());
        comm::Socket bell = comm::make_bell();
        if (way != TcpWay::sockets) comm::share_memory(links, bell, soon());
        made[rank] =
            comm::tcp_transport_over(number, nodes, std::move(links), std::move(bell), settings);
      } catch (const std::exception&) {
        errors[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  return made;
}

TcpJob::TcpJob() : first_(tcp_transport(TcpMeeting::from_environment(), soon())) {}

std::unique_ptr<Transport> TcpJob::connect() const {
  return first_->duplicate(soon());
}

}  // namespace winnow::tests
