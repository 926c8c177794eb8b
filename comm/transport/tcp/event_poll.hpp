// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/epoll.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "comm/transport/failure.hpp"
#include "comm/transport/socket.hpp"

namespace winnow::comm {

/// The sockets whose events a TCP transport waits for, and a doorbell that ends such a wait.
class EventPoll {
 public:
  /// Takes the bell. If the system has no room, `open` says so.
  explicit EventPoll(Socket bell);

  /// Begins to watch the bell.
  void open();
  /// Watches a socket; its events carry `name`.
  void watch(const Socket& socket, std::uint64_t name, std::uint32_t events);
  /// The events of sockets, after up to `timeout` milliseconds if there are none: views until the
  /// next wait. None, and a `problem`, if the system cannot say.
  std::span<const epoll_event> wait(int timeout, std::optional<Failure>& problem);
  /// Ends a wait, from any thread and from peers' rings.
  void ring() noexcept;

 private:
  Socket bell_, epoll_;
  int problem_;  // errno of what made epoll_
  std::array<epoll_event, 64> events_{};
};

}  // namespace winnow::comm
