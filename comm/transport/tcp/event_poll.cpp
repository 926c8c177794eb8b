// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp/event_poll.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <winnow/error.hpp>

#include "comm/transport/tcp/endpoint.hpp"

namespace winnow::comm {
namespace {

constexpr std::uint64_t kBell = ~std::uint64_t{0};  // its name

}  // namespace

EventPoll::EventPoll(Socket bell)
    : bell_(std::move(bell)), epoll_(::epoll_create1(EPOLL_CLOEXEC)), problem_(errno) {}

void EventPoll::open() {
  if (!epoll_.is_open() && has_too_many_files(problem_)) fail_for_files("epoll_create1", problem_);
  if (!epoll_.is_open()) fail_system("epoll_create1", problem_);
  watch(bell_, kBell, EPOLLIN);
}

void EventPoll::watch(const Socket& socket, std::uint64_t name, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = name;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0)
    fail_system("epoll_ctl", errno);
}

std::span<const epoll_event> EventPoll::wait(int timeout, std::optional<Failure>& problem) {
  const int count =
      ::epoll_wait(epoll_.get(), events_.data(), static_cast<int>(events_.size()), timeout);
  if (count < 0 && errno != EINTR) problem = Failure{"epoll_wait: " + errno_text(errno)};
  const std::span all = std::span(events_).first(static_cast<std::size_t>(std::max(count, 0)));
  const auto bells =
      std::ranges::remove_if(all, [](const epoll_event& event) { return event.data.u64 == kBell; });
  if (!bells.empty()) {
    std::uint64_t rings = 0;
    (void)!::read(bell_.get(), &rings, sizeof rings);
  }
  return all.first(all.size() - bells.size());
}

void EventPoll::ring() noexcept {
  const std::uint64_t ring = 1;
  (void)!::write(bell_.get(), &ring, sizeof ring);
}

}  // namespace winnow::comm
