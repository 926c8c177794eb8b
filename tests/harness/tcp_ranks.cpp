// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/harness/tcp_ranks.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <string>
#include <thread>

namespace winnow::tests {
namespace {

Deadline soon() {
  return Deadline::after(std::chrono::seconds(60));
}

}  // namespace

std::vector<std::unique_ptr<Transport>> tcp_transports(int ranks, const TcpOptions& options) {
  std::vector<TcpListener> listeners;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < ranks; ++rank) {
    listeners.emplace_back(options);
    addresses.push_back(listeners.back().address());
  }
  std::vector<std::unique_ptr<Transport>> made(listeners.size());
  std::vector<std::exception_ptr> errors(listeners.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < made.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        made[rank] = listeners[rank].connect(static_cast<int>(rank), addresses, soon());
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
  TcpListener listener;
  std::array<char, 4000> mine{};
  (void)listener.address().copy(mine.data(), mine.size() - 1);
  std::vector<std::array<char, 4000>> all(static_cast<std::size_t>(ranks()));
  first_->all_gather({}, std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)),
                     soon());
  std::vector<std::string> addresses;
  for (const auto& text : all) addresses.emplace_back(text.data());
  return listener.connect(rank(), addresses, soon());
}

}  // namespace winnow::tests
