// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <winnow/exec.hpp>

#include "compress/index_coding.hpp"
#include "kernels/call_status.hpp"
#include "kernels/finish_message.hpp"
#include "kernels/message_header.hpp"
#include "kernels/terms.hpp"
#include "kernels/value_coding.hpp"

namespace winnow::compress {

/// The first 64 bytes of every message, little-endian, as on the wire. The index part and then the
/// value part follow; (count, k, codings) determine the size of both.
/// docs/message_format.md is the specification.
struct Header {
  static constexpr std::uint32_t kMagic = 0x574e4e57;  // "WNNW"
  static constexpr std::uint8_t kVersion = 1;

  enum class Kind : std::uint8_t {
    gradient = 1,      ///< what a rank keeps of its gradient, for all ranks
    agreement = 2,     ///< a header alone: what the rank is about to do
    contribution = 3,  ///< what a rank keeps of its gradient in the positions of one owner
    sum = 4,           ///< what an owner keeps of the sum of its positions, for all ranks
    partial = 5,       ///< what some ranks' gradients, as they travel, sum up to
    support = 6,       ///< which of its positions an owner chooses, for all ranks: without values
  };
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
  std::uint32_t owner = 0;   ///< whose positions a contribution, sum or support names
  std::uint16_t part = 0;    ///< which part of the bucket
  std::uint8_t index_coding = 0;
  std::uint8_t value_coding = 0;  ///< id, and above its 4 bits log2(block) - 5 or 0
  std::uint64_t checksum = 0;     ///< of the whole message, with this field zero
};
static_assert(sizeof(Header) == 64);

/// How positions and values are written.
struct Codings {
  kernels::ValueFormat value{.coding = &kernels::value_codings().front()};  ///< float32
  const IndexCoding* index = nullptr;  ///< null: the one with the fewest bytes for (count, k)
  std::uint64_t seed = 0;              ///< Options::seed, for positions that all ranks draw

  /// Whether values arrive as they were.
  bool exact() const { return value.coding != nullptr && value.coding->bits == 32; }
  /// Whether all ranks draw the positions.
  bool drawn() const { return index != nullptr && index->drawn; }
  /// The codings of a message that only carries positions.
  Codings without_values() const { return {.value = {}, .index = index, .seed = seed}; }
  /// The key by which all ranks draw the positions of a message in kSeededCoding: the same for all
  /// messages of a part in one call. The call's number is the header's, or the one in `status` if
  /// that is not null.
  kernels::RandomKey drawing_key(const Header& header, const kernels::CallStatus* status) const {
    constexpr std::uint64_t kDrawing = 0x6b6d6f646e6172;  // "randomk"
    return {.seed = kDrawing + seed,
            .call = header.call,
            .stage = header.part,
            .device_call = status == nullptr ? nullptr : &status->call};
  }
};

/// How long the parts of a message are, which (count, k) and its codings determine. A plan has
/// those of its messages, so that calls work out only those of messages whose k a gradient decides.
struct Shape {
  const IndexCoding* coding;
  std::uint64_t index_bytes, value_bytes;
  std::size_t bytes() const { return sizeof(Header) + index_bytes + value_bytes; }
};

/// The shape of a message that carries k of count elements; the same on all ranks, and never longer
/// for a smaller k. If all is carried there is no index part, whatever coding was requested.
/// UsageError if no message can.
Shape shape_of(std::uint64_t count, std::uint64_t k, const Codings& codings = {});

/// The shape of a message that is only a header, since it carries none of 0 elements.
inline Shape header_alone() {
  return {.coding = &kNoneCoding, .index_bytes = 0, .value_bytes = 0};
}

/// The message that a receiver expects, and how much it may carry.
struct Expected {
  /// Exactly header.k elements; `known`: the shape of such a message, if a plan has it.
  // NOLINTNEXTLINE(google-explicit-constructor): a header is enough if k is known
  Expected(const Header& expected, std::optional<Shape> known = std::nullopt)
      : header(expected), shape(known), least_k(expected.k), room_k(expected.k) {}
  /// Any number from 0 to header.k.
  static Expected at_most(const Header& header) { return up_to(header, header.k, 0, std::nullopt); }
  /// Exactly k elements, a count that the sender has sent before, in a message of this shape; in
  /// other calls it may be up to header.k.
  static Expected exactly(const Header& header, std::uint64_t k, const Shape& shape) {
    return up_to(header, k, k, shape);
  }

  Header header;
  std::optional<Shape> shape;  ///< of a message with header.k elements
  std::uint64_t least_k;       ///< header.k is the most
  std::uint64_t room_k;        ///< the most in any call, for which scratch is taken
  bool varies = false;         ///< from call to call

 private:
  static Expected up_to(const Header& header, std::uint64_t most, std::uint64_t least,
                        std::optional<Shape> shape) {
    Expected expected(header, shape);
    expected.header.k = most;
    expected.least_k = least;
    expected.varies = true;
    return expected;
  }
};

/// A message that was found sound: views of its bytes, and of indices decoded in scratch.
struct MessageView {
  Header header;
  kernels::Term term = {};  ///< what it adds to a sum: without indices if k == count, and without
                            ///< values if it only carries positions
  std::span<const std::byte> bytes = {};  ///< all of it, as it travelled or will travel

  /// Whether it carries every position, so that it has no indices.
  bool carries_all() const { return header.k == header.count; }
  /// Whether it is a message, and not a sum that is in none yet.
  bool is_packed() const { return !bytes.empty(); }
};

/// A support and its values, which travelled in a message of their own, as one message: value
/// number i belongs to position i of the support. It has the flags of both, and no bytes until it
/// is packed.
MessageView join_values(const MessageView& support, const MessageView& values);

/// shape_of(count, k, codings).bytes().
std::size_t message_bytes(std::uint64_t count, std::uint64_t k, const Codings& codings = {});

/// k, or count if a message that carries every position is no longer than one of k. So a message
/// whose k depends on the gradient never takes more than all elements would.
std::uint64_t shortest_k(std::uint64_t count, std::uint64_t k, const Codings& codings = {});

/// The places in a message, 8-byte aligned and of its shape, where its parts lie.
struct MessageLayout {
  std::span<std::byte> index_part;
  std::span<std::byte> value_part;  ///< k values, in order of position, as kernels::quantize writes

  /// The value part as k numbers, if they are float32.
  std::span<float> floats(std::uint64_t k) const {
    return {reinterpret_cast<float*>(value_part.data()), static_cast<std::size_t>(k)};
  }
};
MessageLayout lay_out(const Shape& shape, std::span<std::byte> message);

/// The places of the header fields that kernels read and write.
inline constexpr kernels::HeaderLayout kHeaderLayout{.flags_at = offsetof(Header, flags),
                                                     .poison = Header::kPoison,
                                                     .checksum_at = offsetof(Header, checksum),
                                                     .k_at = offsetof(Header, k),
                                                     .call_at = offsetof(Header, call)};

/// The header that finish_message writes, but for the checksum, which is 0.
Header complete(Header header, const Shape& shape, const Codings& codings = {});

/// Completes a message of this shape whose value part has been written: codes `index` (ignored if k
/// == count), writes the header with its codings, Header::kPoison if a source says so when the work
/// runs, and the checksum. `status`, if not null, learns of the poison and says which call it is,
/// whatever the header says. Returns what decoding the message would give, with `index` as its
/// indices, without flags of the sources, and with the call of `header`.
MessageView finish_message(const Exec& exec, const Header& header, const Shape& shape,
                           std::span<const std::uint32_t> index, std::span<std::byte> message,
                           const Codings& codings = {}, const kernels::PoisonSources& poison = {},
                           kernels::CallStatus* status = nullptr);

/// A message that arrived, or this rank's own, to be decoded.
struct ReceivedMessage {
  std::span<const std::byte> message;
  Expected expected;
  int sender;
};

/// Decodes messages of one kind, in the memory of exec.place, into as many views: checks every byte
/// and decodes indices, into scratch of that memory, as much whatever k a message has of those
/// expected. Values stay as they travelled. Returns the flags of all headers together; reads them
/// once, and before that the headers if a k is unknown (Expected::at_most). Throws UsageError if a
/// sound header shows that the sender does something else than expected (options, bucket, call, an
/// agreement), and CommError for anything that `finish_message` would not have written.
///
/// With `call`, reads and throws nothing unless a k is unknown: the status names the call, whatever
/// the expected headers say, and collects flags and errors; it alone says whether the views may be
/// read.
std::uint16_t decode_all(const Exec& exec, std::span<const ReceivedMessage> incoming,
                         const Codings& codings, std::span<MessageView> views,
                         kernels::CallStatus* call = nullptr);

/// Decodes one message.
MessageView decode(const Exec& exec, std::span<const std::byte> message, const Expected& expected,
                   int sender, const Codings& codings = {});

/// Writes the codings of a message to `name`, e.g. "eliasfano,float32"; allocates only if its
/// memory is too small.
void name_codings(const Header& header, std::string& name);
/// Writes the codings of a shape before there is a message of it.
void name_codings(const Shape& shape, const Codings& codings, std::string& name);

}  // namespace winnow::compress
