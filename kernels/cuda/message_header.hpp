// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/cuda/verdict.hpp"
#include "kernels/feedback_select.hpp"

namespace winnow::kernels::cuda {

// Messages are checked where they lie. A header is bytes here, in which the caller's layout names
// two fields. Memory is of the device, but for structs and lists of them. Work is
// enqueued on exec.stream, which must belong to the current device; it needs no scratch, does not
// synchronise or allocate, so a CUDA graph can capture it; headers and lists are captured by value.
// CudaError where a launch is refused, UsageError for wrong sizes or in a build without CUDA.

inline constexpr std::size_t kHeaderBytes = 64;
/// std::bit_cast of a header.
using HeaderBytes = std::array<std::byte, kHeaderBytes>;

struct HeaderLayout {
  std::size_t flags_at;     ///< 16 bits, at a multiple of 2
  std::uint16_t poison;     ///< the flag that says so
  std::size_t checksum_at;  ///< 64 bits, at a multiple of 8; none of them is a flag
};

/// What poisons a message: a word that is not 0, such as the kernels of this folder leave where
/// they met what is not finite, and check_headers of a message that was forwarded; or a result that
/// is not finite, or whose room did not do (SelectResult::overflow). As many as there are, none
/// too.
struct PoisonSources {
  std::span<const std::uint32_t> words = {};
  std::span<const SelectResult> results = {};
};

/// A message that came, and what was found out about it before.
struct ReceivedMessage {
  std::span<const std::byte> bytes;    ///< 8-byte aligned
  HeaderBytes expected;                ///< but for the poison flag and the checksum
  const std::uint64_t* sum = nullptr;  ///< cuda::checksums of the bytes as they are
  /// Each null, or a word that is not 0 where a part of the message was refused.
  std::array<const std::uint32_t*, 2> refused = {};
  std::uint32_t number = 0;  ///< by which a Verdict names it
};

/// Bits of a status.
inline constexpr std::uint32_t kPoisoned = 1;  ///< the message has the flag
inline constexpr std::uint32_t kUnsound = 2;   ///< another header or checksum, or a part refused

/// status[m] = what is to be said of messages[m]: 0 for a sound one without poison.
void check_headers(const Exec& exec, std::span<const ReceivedMessage> messages,
                   const HeaderLayout& layout, std::span<std::uint32_t> status);

/// The same, told to a verdict.
void judge_messages(const Exec& exec, std::span<const ReceivedMessage> messages,
                    const HeaderLayout& layout, Verdict* verdict);

}  // namespace winnow::kernels::cuda
