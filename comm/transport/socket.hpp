// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace winnow::comm {

/// Owns a file descriptor, or none. A fork leaves it to the parent: the child closes its copies at
/// once and all its Sockets are closed ones. Otherwise a child that outlives a killed rank would
/// hide the rank's death from its peers, since a connection ends with its last copy.
class Socket {
 public:
  Socket() = default;
  /// Takes what a system call returned; a negative number is none.
  explicit Socket(int descriptor) noexcept;
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  ~Socket() { close(); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  bool is_open() const { return descriptor_ >= 0; }
  int get() const { return descriptor_; }
  void close() noexcept;

 private:
  struct All;
  static All& all();
  static void close_all() noexcept;
  void link(int descriptor) noexcept;
  int unlink() noexcept;

  int descriptor_ = -1;
  Socket* before_ = nullptr;  // in the list of those that are open
  Socket* after_ = nullptr;
};

/// The system's text for an error code.
std::string errno_text(int code);

/// Throws CommError: "`what`: " and the text of `code`.
[[noreturn]] void fail_system(const std::string& what, int code);

}  // namespace winnow::comm
