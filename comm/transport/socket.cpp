// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/socket.hpp"

#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <system_error>
#include <utility>
#include <winnow/error.hpp>

namespace winnow::comm {

/// The open sockets of this process.
struct Socket::All {
  std::mutex mutex;
  Socket* first = nullptr;
};

Socket::All& Socket::all() {
  static All* const all = [] {
    auto* const made = new All;  // for ever: a child of the last fork may need it
    ::pthread_atfork([] { Socket::all().mutex.lock(); }, [] { Socket::all().mutex.unlock(); },
                     [] { Socket::close_all(); });
    return made;
  }();
  return *all;
}

// In the child of a fork, which holds the mutex since before.
void Socket::close_all() noexcept {
  Socket* next = nullptr;
  for (Socket* socket = all().first; socket != nullptr; socket = next) {
    next = std::exchange(socket->after_, nullptr);
    socket->before_ = nullptr;
    ::close(std::exchange(socket->descriptor_, -1));
  }
  all().first = nullptr;
  all().mutex.unlock();
}

Socket::Socket(int descriptor) noexcept {
  link(descriptor);
}

Socket::Socket(Socket&& other) noexcept {
  link(other.unlink());
}

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this == &other) return *this;
  close();
  link(other.unlink());
  return *this;
}

void Socket::close() noexcept {
  const int descriptor = unlink();
  if (descriptor >= 0) ::close(descriptor);
}

void Socket::link(int descriptor) noexcept {
  if (descriptor < 0) return;
  const std::lock_guard lock(all().mutex);
  descriptor_ = descriptor;
  before_ = nullptr;
  after_ = std::exchange(all().first, this);
  if (after_ != nullptr) after_->before_ = this;
}

int Socket::unlink() noexcept {
  if (descriptor_ < 0) return -1;
  const std::lock_guard lock(all().mutex);
  (before_ != nullptr ? before_->after_ : all().first) = after_;
  if (after_ != nullptr) after_->before_ = before_;
  before_ = after_ = nullptr;
  return std::exchange(descriptor_, -1);
}

std::string errno_text(int code) {
  return std::generic_category().message(code);
}

void fail_system(const std::string& what, int code) {
  throw CommError(what + ": " + errno_text(code), code);
}

}  // namespace winnow::comm
