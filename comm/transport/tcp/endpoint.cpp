// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp/endpoint.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <memory>
#include <winnow/error.hpp>

#include "topology/words.hpp"

namespace winnow::comm {
namespace {

bool set_option(const Socket& socket, int level, int name, int value) {
  return ::setsockopt(socket.get(), level, name, &value, sizeof value) == 0;
}

constexpr std::string_view kHexDigits = "0123456789abcdef";

socklen_t bytes_of_address(sa_family_t family) {
  return family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

/// Whether `name` is one of the comma-separated `names`.
bool is_named(std::string_view names, std::string_view name) {
  while (!names.empty())
    if (cut(names, ',') == name) return true;
  return false;
}

struct FreeInterfaces {
  void operator()(ifaddrs* list) const { ::freeifaddrs(list); }
};
struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};

}  // namespace

Endpoint::Endpoint(const sockaddr* address, socklen_t bytes) : bytes_(bytes) {
  std::memcpy(&storage_, address, bytes);
}

std::optional<Endpoint> Endpoint::parse(std::string_view text) {
  if (text.starts_with('@')) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const bool is_name = text.size() > 1 && text.size() <= sizeof address.sun_path &&
                         text.find_first_not_of(kHexDigits, 1) == std::string_view::npos;
    if (!is_name) return {};
    text.substr(1).copy(&address.sun_path[1], text.size() - 1);  // behind the 0 of such names
    return Endpoint(reinterpret_cast<const sockaddr*>(&address),
                    static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size()));
  }
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) return {};
  std::uint16_t port = 0;
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data() + colon + 1, end, port);
  if (error != std::errc() || last != end || port == 0) return {};
  std::string host(text.substr(0, colon));
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port);
    if (::inet_pton(AF_INET6, host.c_str(), &address.sin6_addr) != 1) return {};
    return Endpoint(reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (::inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) return {};
  return Endpoint(reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

Endpoint Endpoint::of(const Socket& socket) {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof storage;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&storage), &bytes) != 0)
    fail_system("getsockname", errno);
  return {reinterpret_cast<const sockaddr*>(&storage), bytes};
}

Endpoint Endpoint::at_port(int port) const {
  Endpoint other = *this;
  const std::uint16_t number = htons(static_cast<std::uint16_t>(port));
  if (family() == AF_INET6)
    reinterpret_cast<sockaddr_in6&>(other.storage_).sin6_port = number;
  else
    reinterpret_cast<sockaddr_in&>(other.storage_).sin_port = number;
  return other;
}

std::string Endpoint::text() const {
  if (family() == AF_UNIX) {
    const auto& name = reinterpret_cast<const sockaddr_un&>(storage_).sun_path;
    std::string text(name, bytes_ - offsetof(sockaddr_un, sun_path));
    text.front() = '@';
    return text;
  }
  std::array<char, INET6_ADDRSTRLEN> host{};
  if (family() == AF_INET6) {
    const auto& address = reinterpret_cast<const sockaddr_in6&>(storage_);
    ::inet_ntop(AF_INET6, &address.sin6_addr, host.data(), host.size());
    return std::string(1, '[')
        .append(host.data())
        .append("]:")
        .append(std::to_string(ntohs(address.sin6_port)));
  }
  const auto& address = reinterpret_cast<const sockaddr_in&>(storage_);
  ::inet_ntop(AF_INET, &address.sin_addr, host.data(), host.size());
  return std::string(host.data()).append(1, ':').append(std::to_string(ntohs(address.sin_port)));
}

bool Endpoint::is_local() const {
  if (family() == AF_UNIX) return true;
  if (family() == AF_INET6)
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(storage_).sin6_addr);
  const auto& address = reinterpret_cast<const sockaddr_in&>(storage_);
  return ntohl(address.sin_addr.s_addr) >> 24 == 127;
}

std::vector<Endpoint> local_endpoints(std::string_view interfaces, Reach reach) {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) fail_system("getifaddrs", errno);
  const std::unique_ptr<ifaddrs, FreeInterfaces> owner(first);
  std::vector<Endpoint> found;
  std::string names;  // of those that would do
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const sa_family_t family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    if (family == AF_INET6 &&
        IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr))
      continue;
    const Endpoint endpoint(entry->ifa_addr, bytes_of_address(family));
    if (reach == Reach::machine && !endpoint.is_local()) continue;
    if (!is_named(names, entry->ifa_name)) {
      if (!names.empty()) names += ',';
      names += entry->ifa_name;
    }
    if (interfaces.empty() || is_named(interfaces, entry->ifa_name)) found.push_back(endpoint);
  }
  const sockaddr unnamed{.sa_family = AF_UNIX, .sa_data = {}};
  found.insert(found.begin(), Endpoint(&unnamed, sizeof unnamed.sa_family));  // bind() names it
  WINNOW_EXPECTS(found.size() > 1,
                 "no network interface '" + std::string(interfaces) + "' with " +
                     (reach == Reach::machine ? "a loopback address" : "an address") + " is up; " +
                     (names.empty() ? "none is" : "there are " + names));
  return found;
}

Reach reach_of(const std::string& host) {
  const bool is_bare = host.find(':') != std::string::npos && !host.starts_with('[');
  const auto number = Endpoint::parse((is_bare ? '[' + host + ']' : host) + ":1");
  return host == "localhost" || (number && number->is_local()) ? Reach::machine : Reach::hosts;
}

std::vector<Endpoint> resolve(const std::string& host, int port) {
  const bool has_brackets = host.starts_with('[') && host.ends_with(']');
  const std::string name = has_brackets ? host.substr(1, host.size() - 2) : host;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* first = nullptr;
  const int code = ::getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &first);
  if (code != 0)
    throw CommError("no address of host '" + name + "': " + ::gai_strerror(code), code);
  const std::unique_ptr<addrinfo, FreeAddresses> owner(first);
  std::vector<Endpoint> found;
  for (const addrinfo* entry = first; entry != nullptr; entry = entry->ai_next)
    found.emplace_back(entry->ai_addr, entry->ai_addrlen);
  return found;
}

Socket listen_at(const Endpoint& endpoint) noexcept {
  Socket socket(::socket(endpoint.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.is_open()) return socket;
  set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  if (endpoint.family() == AF_INET6) set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, 1);
  if (::bind(socket.get(), endpoint.address(), endpoint.bytes()) == 0 &&
      ::listen(socket.get(), SOMAXCONN) == 0)
    return socket;
  const int code = errno;
  socket.close();
  errno = code;
  return socket;
}

Socket connect_to(const Endpoint& endpoint) noexcept {
  Socket socket(::socket(endpoint.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.is_open()) return socket;
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  if (::connect(socket.get(), endpoint.address(), endpoint.bytes()) == 0 || errno == EINPROGRESS)
    return socket;
  const int code = errno;
  socket.close();
  errno = code;
  return socket;
}

bool is_connecting(const Socket& socket, const Endpoint& endpoint) noexcept {
  // A second call shows how the first one went.
  const int code = ::connect(socket.get(), endpoint.address(), endpoint.bytes()) == 0 ? 0 : errno;
  errno = code == EISCONN ? 0 : code;
  return code == EALREADY || code == EINPROGRESS || code == EINTR;
}

Socket accept_from(const Socket& listening) noexcept {
  Socket socket(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.is_open()) set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  return socket;
}

bool has_too_many_files(int code) noexcept {
  return code == EMFILE || code == ENFILE;
}

void fail_for_files(const std::string& what, int code) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  fail_system(what + " (ulimit -n is " + std::to_string(limit.rlim_cur) + ")", code);
}

}  // namespace winnow::comm
