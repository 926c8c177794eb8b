// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/feedback_select.hpp"
#include "kernels/message_header.hpp"

namespace winnow::kernels {

/// What poisons a message: a word that is not 0, such as kernels raise where they meet what is not
/// finite; or a selection that is not finite, or whose room did not do (SelectResult::overflow). As
/// many as there are, none too.
struct PoisonSources {
  std::span<const std::uint32_t> words = {};
  std::span<const SelectResult> results = {};
};

/// A message whose values lie in their place, and what else goes into it.
struct SealJob {
  std::span<std::byte> message;  ///< 8-byte aligned: header, index part, value part
  HeaderBytes header = {};       ///< but for poison and the checksum
  HeaderLayout layout = {};
  PoisonSources poison = {};
  std::uint32_t* poisoned = nullptr;  ///< where not null, becomes 1 where a source says so
  std::size_t padding = 0;  ///< bytes at the end, below 8, which may hold anything and become 0
  std::uint64_t count = 0;  ///< positions that the indices may name
  std::span<const std::uint32_t> index = {};  ///< ascending, below count
};

/// Each writes the index part in its coding, the header, with poison where a source says so, the
/// padding and the checksum: on a device in one pass over the message. `seal` is for a message
/// without indices. UsageError for wrong sizes.
void seal(const Exec& exec, const SealJob& job);
void seal_raw32(const Exec& exec, const SealJob& job);
void seal_eliasfano(const Exec& exec, const SealJob& job);
void seal_bitmap(const Exec& exec, const SealJob& job);

}  // namespace winnow::kernels
