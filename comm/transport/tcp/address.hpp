// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/transport/tcp/endpoint.hpp"

namespace winnow::comm {

/// The address of a rank's listener: where it listens, on which machine it is, and a random number
/// that a stranger does not know.
struct TcpAddress {
  using Nonce = std::array<std::uint8_t, 16>;

  Nonce nonce{};
  std::uint64_t machine = 0;  ///< equal on ranks that share a kernel and its network namespace
  std::vector<Endpoint> endpoints;

  /// One line: "winnow-tcp-2;NONCE;MACHINE;ENDPOINT,ENDPOINT...".
  std::string text() const;
  /// Throws UsageError.
  static TcpAddress parse(std::string_view text);

  /// Random; throws CommError if the system has none.
  static Nonce new_nonce();
  /// The machine of this process.
  static std::uint64_t this_machine();
};

/// Where to look for a rank from `machine`, the most likely endpoint first: within a machine a Unix
/// socket, then loopback; between machines neither.
std::vector<Endpoint> reachable(const TcpAddress& address, std::uint64_t machine);

/// Identifies a list of addresses: FNV-1a over the texts.
std::uint64_t digest_of(std::span<const std::string> addresses);

}  // namespace winnow::comm
