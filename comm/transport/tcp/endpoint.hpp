// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/transport/socket.hpp"

namespace winnow::comm {

/// An IPv4 or IPv6 address and port, in numbers; or a Unix socket's name that is in no file system
/// and means something in one network namespace alone.
class Endpoint {
 public:
  Endpoint() = default;
  Endpoint(const sockaddr* address, socklen_t bytes);
  /// Reads "10.0.0.1:4000", "[fd00::1]:4000" or "@0001f".
  static std::optional<Endpoint> parse(std::string_view text);
  /// The endpoint that a socket is bound to.
  static Endpoint of(const Socket& socket);

  /// The same address at another port; not of a Unix socket.
  Endpoint at_port(int port) const;

  std::string text() const;
  /// Whether it means nothing on another machine.
  bool is_local() const;
  int family() const { return storage_.ss_family; }
  const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t bytes() const { return bytes_; }
  friend bool operator==(const Endpoint& a, const Endpoint& b) { return a.text() == b.text(); }

 private:
  sockaddr_storage storage_{};
  socklen_t bytes_ = 0;
};

/// Who can connect to a rank.
enum class Reach : std::uint8_t {
  hosts,    ///< whoever reaches one of its interfaces
  machine,  ///< processes of its own machine
};
/// That of a job whose rank 0 is at `host`: within its machine if that is a number of the loopback
/// network or "localhost". (A host's own name does not count, even if this host looks it up as
/// 127.0.1.1: others find another address.)
Reach reach_of(const std::string& host);

/// A Unix socket's endpoint without a name yet; and, with port 0, every address of the interfaces
/// with these names (comma-separated; none: of all that are up) within that reach. Leaves out
/// addresses that hold on one link only (fe80::). Throws UsageError if there is no such interface.
std::vector<Endpoint> local_endpoints(std::string_view interfaces, Reach reach = Reach::hosts);

/// The endpoints of a host's name or number, in brackets or not; throws CommError with the
/// resolver's text.
std::vector<Endpoint> resolve(const std::string& host, int port);

/// A socket that listens at `endpoint` and does not block. Not open, and errno set, if the system
/// refuses.
Socket listen_at(const Endpoint& endpoint) noexcept;
/// A socket that begins to connect to `endpoint` without blocking; not open if it cannot.
Socket connect_to(const Endpoint& endpoint) noexcept;
/// Whether a socket is still about to connect to `endpoint`. Otherwise errno says how that ended;
/// 0: well.
bool is_connecting(const Socket& socket, const Endpoint& endpoint) noexcept;
/// The next connection of a listening socket, which does not block; not open, and errno set, if
/// there is none.
Socket accept_from(const Socket& listening) noexcept;
/// Whether a call failed with `code` since this process, or this host, can have no more files open.
bool has_too_many_files(int code) noexcept;
/// Throws CommError: "`what`: too many open files", with the limit of this process.
[[noreturn]] void fail_for_files(const std::string& what, int code);

}  // namespace winnow::comm
