// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/call_status.hpp"
#include "kernels/feedback_select.hpp"
#include "kernels/message_header.hpp"

namespace winnow::kernels {

/// The sources that can poison a message, any number of each: words that are not 0, which kernels
/// set if a number is not finite; and selections that are not finite or that ran out of room
/// (SelectResult::overflow).
struct PoisonSources {
  std::span<const std::uint32_t> words = {};
  std::span<const SelectResult> results = {};
};

/// A message whose values lie in their place, and what else goes into it.
struct FinishJob {
  std::span<std::byte> message;  ///< 8-byte aligned: header, index part, value part
  HeaderBytes header = {};       ///< but for poison and the checksum
  HeaderLayout layout = {};
  PoisonSources poison = {};
  /// If not null, the header names its call. A call is spoiled if a source of poison says so, and
  /// poisons what it sends from then on.
  CallStatus* status = nullptr;
  std::size_t padding = 0;  ///< bytes at the end, below 8, which may hold anything and become 0
  std::uint64_t count = 0;  ///< positions that the indices may name
  std::span<const std::uint32_t> index = {};  ///< ascending, below count
};

/// Each writes the index part in its coding, the header, with poison if a source says so, the
/// padding and the checksum: on a device in one pass over the message. `finish_message` is for a
/// message without indices. UsageError for wrong sizes.
void finish_message(const Exec& exec, const FinishJob& job);
void finish_raw32(const Exec& exec, const FinishJob& job);
void finish_eliasfano(const Exec& exec, const FinishJob& job);
void finish_bitmap(const Exec& exec, const FinishJob& job);

}  // namespace winnow::kernels
