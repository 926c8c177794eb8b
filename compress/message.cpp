// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/message.hpp"

#include <bit>
#include <limits>
#include <optional>
#include <string>
#include <winnow/error.hpp>

#include "compress/message_shape.hpp"
#include "kernels/arithmetic/value_layout.hpp"

namespace winnow::compress {

static_assert(std::endian::native == std::endian::little, "messages are little-endian in memory");
static_assert(sizeof(float) == 4 && std::numeric_limits<float>::is_iec559);

namespace {

constexpr std::uint16_t kKnownFlags = Header::kPoison | Header::kRefused;

void append_value_text(std::string& text, std::uint8_t byte) {
  std::string_view name = byte == 0 ? "none" : "unknown";
  for (const kernels::ValueCoding& coding : kernels::value_codings()) {
    if (coding.id == byte % 16) name = coding.name;
  }
  text += name;
  if (byte >= 16) text.append(":block=").append(std::to_string(32u << (byte >> 4)));
}

}  // namespace

std::optional<Shape> find_shape(std::uint64_t count, std::uint64_t k, const Codings& codings) {
  constexpr std::uint64_t kMostValues = std::uint64_t{1} << 56;
  if (k > count || k > kMostValues) return std::nullopt;
  const bool requested = codings.index != nullptr && k != count;
  const IndexCoding* coding = requested ? codings.index : choose_index_coding(count, k);
  if (coding == nullptr) return std::nullopt;
  const std::optional<std::uint64_t> index_bytes = coding->bytes(count, k);
  if (!index_bytes) return std::nullopt;
  const bool has_values = codings.value.coding != nullptr;
  return Shape{coding, *index_bytes, has_values ? kernels::ValueLayout(codings.value, k).bytes : 0};
}

Shape shape_of(std::uint64_t count, std::uint64_t k, const Codings& codings) {
  const std::optional<Shape> shape = find_shape(count, k, codings);
  WINNOW_EXPECTS(shape.has_value(), "no message can carry " + std::to_string(k) + " of " +
                                        std::to_string(count) +
                                        " elements; k is at most count, and where it is less, "
                                        "count is below 2^32");
  return *shape;
}

std::uint8_t value_byte(const kernels::ValueFormat& format) {
  if (format.coding == nullptr) return 0;
  const int block = format.block == 0 ? 0 : std::countr_zero(format.block) - 5;
  return static_cast<std::uint8_t>(format.coding->id | block << 4);
}

std::string value_text(std::uint8_t byte) {
  std::string text;
  append_value_text(text, byte);
  return text;
}

std::string hex(std::uint64_t number) {
  std::string text = "0x";
  for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[number >> shift & 15];
  return text;
}

MessageView view_of(const Header& header, const Shape& shape, std::span<const std::uint32_t> index,
                    std::span<const std::byte> bytes, const Codings& codings) {
  const auto value_part = bytes.last(shape.value_bytes);
  MessageView view{.header = header, .bytes = bytes};
  if (!view.carries_all()) view.term.index = index;
  if (codings.exact()) {
    view.term.value = {reinterpret_cast<const float*>(value_part.data()),
                       static_cast<std::size_t>(header.k)};
  } else {
    view.term.format = codings.value;
    view.term.coded = value_part;
    view.term.count = header.k;
  }
  return view;
}

MessageView join_values(const MessageView& support, const MessageView& values) {
  MessageView joined = support;
  joined.header.kind = Header::Kind::sum;
  joined.header.flags |= values.header.flags;
  joined.bytes = {};
  joined.term = values.term;
  joined.term.index = support.term.index;
  return joined;
}

std::size_t message_bytes(std::uint64_t count, std::uint64_t k, const Codings& codings) {
  return shape_of(count, k, codings).bytes();
}

std::uint64_t shortest_k(std::uint64_t count, std::uint64_t k, const Codings& codings) {
  return message_bytes(count, k, codings) < message_bytes(count, count, codings) ? k : count;
}

MessageLayout lay_out(const Shape& shape, std::span<std::byte> message) {
  WINNOW_EXPECTS(message.size() == shape.bytes() && is_aligned(message.data()),
                 "a message of " + std::to_string(shape.bytes()) +
                     " bytes needs exactly these, 8-byte aligned; got " +
                     std::to_string(message.size()));
  const auto parts = message.subspan(sizeof(Header));
  return {parts.first(shape.index_bytes), parts.subspan(shape.index_bytes)};
}

Header complete(Header header, const Shape& shape, const Codings& codings) {
  WINNOW_EXPECTS((header.flags & ~kKnownFlags) == 0, "unknown flags " + hex(header.flags));
  header.magic = Header::kMagic;
  header.version = Header::kVersion;
  header.index_coding = shape.coding->id;
  header.value_coding = value_byte(codings.value);
  header.checksum = 0;
  return header;
}

MessageView finish_message(const Exec& exec, const Header& header, const Shape& shape,
                           std::span<const std::uint32_t> index, std::span<std::byte> message,
                           const Codings& codings, const kernels::PoisonSources& poison,
                           kernels::CallStatus* status) {
  const Header whole = complete(header, shape, codings);
  (void)lay_out(shape, message);  // checks the size
  const bool coded = header.k != header.count;
  WINNOW_EXPECTS(!coded || index.size() == header.k, "a message of k " + std::to_string(header.k) +
                                                         " needs as many indices; got " +
                                                         std::to_string(index.size()));
  const MessageView view = view_of(whole, shape, index, message, codings);
  // Float32 values may have been written to their place one by one, without the padding.
  const bool is_padded = codings.exact() && header.k % 2 != 0;
  shape.coding->finish(exec, {.message = message,
                              .header = std::bit_cast<kernels::HeaderBytes>(whole),
                              .layout = kHeaderLayout,
                              .poison = poison,
                              .status = status,
                              .padding = is_padded ? sizeof(float) : 0,
                              .count = header.count,
                              .index = coded ? index : std::span<const std::uint32_t>()});
  return view;
}

void name_codings(const Header& header, std::string& name) {
  name = index_coding_name(header.index_coding);
  name += ',';
  append_value_text(name, header.value_coding);
}

void name_codings(const Shape& shape, const Codings& codings, std::string& name) {
  name_codings(Header{.index_coding = shape.coding->id, .value_coding = value_byte(codings.value)},
               name);
}

}  // namespace winnow::compress
