// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <winnow/exec.hpp>

namespace winnow::compress {

/// The first 64 bytes of every message, little-endian, as they lie on the wire. What follows is
/// the index part and then the value part; (count, k, codings) fix the size of both.
/// docs/message_format.md is the specification.
struct Header {
  static constexpr std::uint32_t kMagic = 0x574e4e57;  // "WNNW"
  static constexpr std::uint8_t kVersion = 1;

  enum class Kind : std::uint8_t { gradient = 1, agreement = 2 };
  static constexpr std::uint16_t kPoison = 1;   ///< flag: an element of the sender is not finite
  static constexpr std::uint16_t kRefused = 2;  ///< flag: the sender refuses this bucket

  std::uint32_t magic = kMagic;
  std::uint8_t version = kVersion;
  Kind kind = Kind::gradient;
  std::uint16_t flags = 0;
  std::uint64_t digest = 0;  ///< of the sender's options
  std::uint64_t bucket = 0;  ///< of the bucket's parameter ids and counts
  std::uint64_t call = 0;    ///< calls that the sender made before this one
  std::uint64_t count = 0;   ///< positions that the index part may name
  std::uint64_t k = 0;       ///< elements carried
  std::uint32_t epoch = 0;   ///< raised when the group of ranks changes
  std::uint16_t part = 0;    ///< which part of the bucket
  std::uint8_t index_coding = 0;
  std::uint8_t value_coding = 0;
  std::uint64_t checksum = 0;  ///< of the whole message, with this field zero
};
static_assert(sizeof(Header) == 64);

/// A message that was found sound, opened: views of its bytes and of decoded indices in scratch.
struct MessageView {
  Header header;
  std::span<const std::uint32_t> index;  ///< empty where k == count: positions 0, 1, ..., k-1
  std::span<const float> value;
};

/// Bytes of a message that carries k of count elements under the codings that Winnow chooses for
/// them; the same on all ranks.
std::size_t message_bytes(std::uint64_t count, std::uint64_t k);

/// The places in `out` (message_bytes(count, k) bytes, 8-byte aligned) where the parts of a
/// message lie.
struct MessageLayout {
  std::span<std::byte> index_part;
  std::span<float> value;  ///< k values, in order of position
};
MessageLayout lay_out(std::uint64_t count, std::uint64_t k, std::span<std::byte> out);

/// Completes a message whose value part has been written: codes `index` (ignored where k ==
/// count), writes the header with its codings and the checksum.
void seal(const Exec& exec, Header header, std::span<const std::uint32_t> index,
          std::span<std::byte> out);

/// Opens the message that `sender` sent. Trusts no byte of it: throws UsageError where the sound
/// header says that the sender does something else than `expected` (options, bucket, call), and
/// CommError for anything that `seal` would not have written. Takes indices from exec.workspace.
MessageView open(const Exec& exec, std::span<const std::byte> message, const Header& expected,
                 int sender);

}  // namespace winnow::compress
