// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/message.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <winnow/error.hpp>

#include "kernels/arithmetic/checksum.hpp"
#include "kernels/checksum.hpp"
#include "kernels/exec/place_memory.hpp"

namespace winnow::compress {

static_assert(std::endian::native == std::endian::little, "messages are little-endian in memory");
static_assert(sizeof(float) == 4 && std::numeric_limits<float>::is_iec559);

namespace {

constexpr std::uint16_t kKnownFlags = Header::kPoison | Header::kRefused;

/// What (count, k) and the codings asked for fix.
struct Shape {
  const IndexCoding* coding;
  std::uint64_t index_bytes, value_bytes;
  std::uint64_t bytes() const { return sizeof(Header) + index_bytes + value_bytes; }
};

/// Nothing where no message can carry k of count elements. Safe for any 64-bit numbers. Where all
/// is carried there is no index part, whatever coding was asked for.
std::optional<Shape> shape_of(std::uint64_t count, std::uint64_t k, const Codings& codings) {
  constexpr std::uint64_t kMostValues = std::uint64_t{1} << 56;
  if (k > count || k > kMostValues) return std::nullopt;
  const bool asked = codings.index != nullptr && k != count;
  const IndexCoding* coding = asked ? codings.index : choose_index_coding(count, k);
  if (coding == nullptr) return std::nullopt;
  const std::optional<std::uint64_t> index_bytes = coding->bytes(count, k);
  if (!index_bytes) return std::nullopt;
  const bool has_values = codings.value.coding != nullptr;
  return Shape{coding, *index_bytes, has_values ? kernels::value_bytes(codings.value, k) : 0};
}

Shape require_shape(std::uint64_t count, std::uint64_t k, const Codings& codings) {
  const std::optional<Shape> shape = shape_of(count, k, codings);
  WINNOW_EXPECTS(shape.has_value(), "no message can carry " + std::to_string(k) + " of " +
                                        std::to_string(count) +
                                        " elements; k is at most count, and where it is less, "
                                        "count is below 2^32");
  return *shape;
}

/// The value coding as it travels.
std::uint8_t value_byte(const kernels::ValueFormat& format) {
  if (format.coding == nullptr) return 0;
  const int block = format.block == 0 ? 0 : std::countr_zero(format.block) - 5;
  return static_cast<std::uint8_t>(format.coding->id | block << 4);
}

void append_value_text(std::string& text, std::uint8_t byte) {
  std::string_view name = byte == 0 ? "none" : "unknown";
  for (const kernels::ValueCoding& coding : kernels::value_codings()) {
    if (coding.id == byte % 16) name = coding.name;
  }
  text += name;
  if (byte >= 16) text.append(":block=").append(std::to_string(32u << (byte >> 4)));
}

std::string value_text(std::uint8_t byte) {
  std::string text;
  append_value_text(text, byte);
  return text;
}

/// The host reads and writes messages, and what it takes from the workspace for them.
void expect_host(const Exec& exec) {
  WINNOW_EXPECTS(
      exec.place != Place::cuda && (exec.workspace == nullptr || !exec.workspace->is_device()),
      "these messages are sealed and opened in host memory; pass Place::cpu and a Workspace "
      "of the host");
}

/// The checksum as it belongs into the header: of all words but the checksum's own two.
std::uint64_t checksum_of(const Exec& exec, std::span<const std::byte> message,
                          const Header& header) {
  std::uint64_t sum = 0;
  kernels::checksums(exec, {&message, 1}, &sum);
  return sum - kernels::sum_of_pair(offsetof(Header, checksum) / 8, header.checksum);
}

std::string hex(std::uint64_t number) {
  std::string text = "0x";
  for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[number >> shift & 15];
  return text;
}

bool aligned(const std::byte* memory) {
  return reinterpret_cast<std::uintptr_t>(memory) % 8 == 0;
}

[[noreturn]] void refuse(int sender, const std::string& what) {
  throw CommError("message from rank " + std::to_string(sender) + ": " + what);
}

bool is_known(Header::Kind kind) {
  switch (kind) {
    case Header::Kind::gradient:
    case Header::Kind::agreement:
    case Header::Kind::contribution:
    case Header::Kind::sum:
    case Header::Kind::partial:
    case Header::Kind::support:
      return true;
  }
  return false;
}

/// Step 1 of open: the message is one that some rank could have sealed, but for its index part.
Shape check_sound(const Exec& exec, std::span<const std::byte> message, const Header& header,
                  const Codings& codings, int sender) {
  if (header.magic != Header::kMagic) {
    refuse(sender,
           "it begins with " + hex(header.magic) + ", not with Winnow's " + hex(Header::kMagic));
  }
  if (header.version != Header::kVersion) {
    refuse(sender, "its format is version " + std::to_string(header.version) +
                       ", this rank reads version " + std::to_string(Header::kVersion) +
                       "; all ranks must run the same Winnow");
  }
  const std::optional<Shape> shape = shape_of(header.count, header.k, codings);
  if (!shape) {
    refuse(sender, "k " + std::to_string(header.k) + " of count " + std::to_string(header.count) +
                       " cannot be");
  }
  if (header.index_coding != shape->coding->id) {
    refuse(sender, "index coding " + std::to_string(header.index_coding) + " (" +
                       std::string(index_coding_name(header.index_coding)) + "), where k " +
                       std::to_string(header.k) + " of count " + std::to_string(header.count) +
                       " take " + std::string(shape->coding->name));
  }
  if (header.value_coding != value_byte(codings.value)) {
    refuse(sender, "value coding " + std::to_string(header.value_coding) + " (" +
                       value_text(header.value_coding) + "), where " +
                       value_text(value_byte(codings.value)) + " is expected");
  }
  if (message.size() != shape->bytes()) {
    refuse(sender, "it has " + std::to_string(message.size()) + " bytes, where k " +
                       std::to_string(header.k) + " of count " + std::to_string(header.count) +
                       " take " + std::to_string(shape->bytes()));
  }
  const std::uint64_t sum = checksum_of(exec, message, header);
  if (sum != header.checksum) {
    refuse(sender, "its checksum is " + hex(header.checksum) + ", that of its bytes " + hex(sum));
  }
  if (!is_known(header.kind)) {
    refuse(sender, "kind " + std::to_string(static_cast<int>(header.kind)) + " is unknown");
  }
  if ((header.flags & ~kKnownFlags) != 0) {
    refuse(sender, "flags " + hex(header.flags) + " are unknown");
  }
  const auto value_part = message.subspan(sizeof(Header) + shape->index_bytes);
  const auto refused = [&](std::uint32_t* word) {
    kernels::check_values(
        exec, {.format = codings.value, .k = header.k, .coded = value_part, .refused = word});
  };
  if (codings.value.coding != nullptr && kernels::answer(exec, refused) != 0) {
    refuse(sender, "its value part is not " + std::to_string(header.k) + " values of " +
                       value_text(header.value_coding) + " with zeros behind them");
  }
  return *shape;
}

/// Step 2 of open: the sender makes the call that this rank makes.
void check_same_call(const Header& header, const Header& expected, int sender) {
  const auto differ = [&](std::string_view what, std::uint64_t theirs, std::uint64_t ours,
                          std::string_view advice) {
    if (theirs == ours) return;
    fail_usage("rank " + std::to_string(sender) + " and this rank differ in " + std::string(what) +
               " (" + hex(theirs) + " there, " + hex(ours) + " here): " + std::string(advice));
  };
  differ("epoch", header.epoch, expected.epoch, "the group of ranks changed on one of them alone");
  differ("the digest of their options", header.digest, expected.digest,
         "give every rank the same Options");
  differ("the bucket", header.bucket, expected.bucket,
         "all ranks must reduce the same parameter ids and counts in the same order");
  differ("the number of the call", header.call, expected.call,
         "all ranks must make the same calls in the same order");
  differ("the part of the bucket", header.part, expected.part,
         "all ranks must reduce the same parameter ids and counts in the same order");
}

}  // namespace

std::size_t message_bytes(std::uint64_t count, std::uint64_t k, const Codings& codings) {
  return require_shape(count, k, codings).bytes();
}

std::uint64_t shortest_k(std::uint64_t count, std::uint64_t k, const Codings& codings) {
  return message_bytes(count, k, codings) < message_bytes(count, count, codings) ? k : count;
}

MessageLayout lay_out(std::uint64_t count, std::uint64_t k, std::span<std::byte> out,
                      const Codings& codings) {
  const Shape shape = require_shape(count, k, codings);
  WINNOW_EXPECTS(out.size() == shape.bytes() && aligned(out.data()),
                 "a message of " + std::to_string(shape.bytes()) +
                     " bytes needs exactly these, 8-byte aligned; got " +
                     std::to_string(out.size()));
  const auto parts = out.subspan(sizeof(Header));
  return {parts.first(shape.index_bytes), parts.subspan(shape.index_bytes)};
}

Header complete(Header header, const Codings& codings) {
  WINNOW_EXPECTS((header.flags & ~kKnownFlags) == 0, "unknown flags " + hex(header.flags));
  header.magic = Header::kMagic;
  header.version = Header::kVersion;
  header.index_coding = require_shape(header.count, header.k, codings).coding->id;
  header.value_coding = value_byte(codings.value);
  header.checksum = 0;
  return header;
}

void seal(const Exec& exec, const Header& header, std::span<const std::uint32_t> index,
          std::span<std::byte> out, const Codings& codings) {
  expect_host(exec);
  const Shape shape = require_shape(header.count, header.k, codings);
  (void)lay_out(header.count, header.k, out, codings);  // whose size it checks
  const bool coded = header.k != header.count;
  WINNOW_EXPECTS(!coded || index.size() == header.k, "a message of k " + std::to_string(header.k) +
                                                         " needs as many indices; got " +
                                                         std::to_string(index.size()));
  shape.coding->seal(exec,
                     {.message = out,
                      .header = std::bit_cast<kernels::HeaderBytes>(complete(header, codings)),
                      .layout = kHeaderLayout,
                      .count = header.count,
                      .index = coded ? index : std::span<const std::uint32_t>()});
}

MessageView open(const Exec& exec, std::span<const std::byte> message, const Expected& expected,
                 int sender, const Codings& codings) {
  const std::uint64_t least_k = expected.least_k, most_k = expected.header.k;
  WINNOW_EXPECTS(aligned(message.data()), "a message is opened where it is 8-byte aligned");
  WINNOW_EXPECTS(exec.workspace != nullptr, "opening a message needs exec.workspace");
  expect_host(exec);
  if (message.size() < sizeof(Header)) {
    refuse(sender, "it has " + std::to_string(message.size()) + " bytes, fewer than a header's " +
                       std::to_string(sizeof(Header)));
  }
  Header header;
  std::memcpy(&header, message.data(), sizeof header);
  if (header.magic == Header::kMagic && header.kind == Header::Kind::agreement) {
    refuse(sender, "that rank is in the first call of a bucket, this one in a later call");
  }
  const Shape shape = check_sound(exec, message, header, codings, sender);
  check_same_call(header, expected.header, sender);
  if (header.kind != expected.header.kind || header.count != expected.header.count ||
      header.k < least_k || header.k > most_k) {
    refuse(sender, "it is of kind " + std::to_string(static_cast<int>(header.kind)) + " with k " +
                       std::to_string(header.k) + " of count " + std::to_string(header.count) +
                       ", where kind " + std::to_string(static_cast<int>(expected.header.kind)) +
                       " with k " + (least_k < most_k ? "up to " : "") + std::to_string(most_k) +
                       " of count " + std::to_string(expected.header.count) + " is expected");
  }

  const auto parts = message.subspan(sizeof(Header));
  MessageView view{.header = header,
                   .index = {},
                   .value = {},
                   .format = codings.value,
                   .coded = parts.subspan(shape.index_bytes),
                   .bytes = message};
  if (codings.exact()) {
    view.value = {reinterpret_cast<const float*>(view.coded.data()),
                  static_cast<std::size_t>(header.k)};
  }
  if (view.carries_all() && least_k == most_k) return view;
  const auto index = exec.workspace->take<std::uint32_t>(most_k).first(header.k);
  const auto value =
      exec.workspace->take<float>(codings.exact() || codings.value.coding == nullptr ? 0 : most_k);
  if (view.carries_all()) return view;
  const auto decode = [&](std::uint32_t* refused) {
    const kernels::DecodeJob job{.count = header.count,
                                 .in = parts.first(shape.index_bytes),
                                 .index = index,
                                 .refused = refused};
    shape.coding->decode(exec, {&job, 1});
  };
  if (kernels::answer(exec, decode) != 0) {
    refuse(sender, "its index part is not " + std::string(shape.coding->name) + " of " +
                       std::to_string(header.k) + " ascending positions below " +
                       std::to_string(header.count));
  }
  view.index = index;
  if (codings.value.coding != nullptr && !codings.exact()) {
    view.value = value.first(header.k);
    kernels::dequantize(exec, codings.value, header.k, view.coded, 0, value.first(header.k));
  }
  return view;
}

void name_codings(const Header& header, std::string& name) {
  name = index_coding_name(header.index_coding);
  name += ',';
  append_value_text(name, header.value_coding);
}

void name_codings(std::uint64_t count, std::uint64_t k, const Codings& codings, std::string& name) {
  name_codings(Header{.index_coding = require_shape(count, k, codings).coding->id,
                      .value_coding = value_byte(codings.value)},
               name);
}

}  // namespace winnow::compress
