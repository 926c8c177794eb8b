// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/call_status.hpp"

namespace winnow::kernels {

// Messages are checked in place. To kernels a header is bytes; the caller's layout names the
// fields in them that kernels read and write. Lists of messages are the host's; a device takes them
// with its launches.

inline constexpr std::size_t kHeaderBytes = 64;
/// std::bit_cast of a header.
using HeaderBytes = std::array<std::byte, kHeaderBytes>;

struct HeaderLayout {
  std::size_t flags_at;     ///< 16 bits, at a multiple of 2
  std::uint16_t poison;     ///< the flag that says so
  std::size_t checksum_at;  ///< 64 bits, at a multiple of 8; none of them is a flag
  std::size_t k_at = 0;     ///< 64 bits, at a multiple of 8: how many elements the message carries
  std::size_t call_at = 0;  ///< likewise: the number of the call
};

/// A message that came, and what was found out about it before.
struct MessageCheck {
  std::span<const std::byte> bytes;    ///< 8-byte aligned
  HeaderBytes expected;                ///< but for the poison flag and the checksum
  const std::uint64_t* sum = nullptr;  ///< its checksum, by checksums
  /// Each null, or a word that is not 0 if a part of the message was refused.
  std::array<const std::uint32_t*, 2> refused = {};
  std::uint32_t number = 0;  ///< by which a CallStatus names it
};

struct ClaimedKJob {
  std::span<const MessageCheck> messages;  ///< only bytes and expected are looked at
  HeaderLayout layout;
  std::span<std::uint64_t> k;  ///< a word for each message, in the memory of exec.place
};
/// k[m] = how many elements the header of messages[m] claims to carry.
void claimed_k(const Exec& exec, const ClaimedKJob& job);

/// Bits of a message's status.
inline constexpr std::uint32_t kPoisoned = 1;  ///< the message has the flag
inline constexpr std::uint32_t kUnsound = 2;   ///< another header or checksum, or a part refused

struct CheckHeadersJob {
  std::span<const MessageCheck> messages;
  HeaderLayout layout;
  std::span<std::uint32_t> status;  ///< a word for each message, in the memory of exec.place
};
/// status[m] = what is wrong with messages[m]: 0 for a sound one without poison.
void check_headers(const Exec& exec, const CheckHeadersJob& job);

struct CheckMessagesJob {
  std::span<const MessageCheck> messages;
  HeaderLayout layout;
  CallStatus* status = nullptr;  ///< in the memory of exec.place
};
/// Raises what the messages mean for a call: `spoiled` where one is poisoned or unsound, and
/// `unsound` to the lowest number of an unsound one. Each is expected to name the status's call.
void check_messages(const Exec& exec, const CheckMessagesJob& job);

}  // namespace winnow::kernels
