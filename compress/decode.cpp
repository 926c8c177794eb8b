// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Decoding messages. No byte of them is trusted.
#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <string>
#include <winnow/error.hpp>

#include "compress/message_shape.hpp"
#include "kernels/arithmetic/checksum.hpp"
#include "kernels/checksum.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/memory_ops.hpp"

namespace winnow::compress {

namespace {

// Finding the error in a message that is known to have one.

[[noreturn]] void refuse(int sender, const std::string& what) {
  throw CommError("message from rank " + std::to_string(sender) + ": " + what);
}

bool is_known(Header::Kind kind) {
  return kind >= Header::Kind::gradient && kind <= Header::Kind::support;
}

/// The checksum as it belongs into the header: of all words but the checksum's own two.
std::uint64_t checksum_of(const Exec& exec, std::span<const std::byte> message,
                          const Header& header) {
  std::uint64_t sum = 0;
  kernels::checksums(exec, {&message, 1}, &sum);
  return sum - kernels::sum_of_pair(offsetof(Header, checksum) / 8, header.checksum);
}

/// Throws unless some rank could have finished the message, index part aside.
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
  const std::optional<Shape> shape = find_shape(header.count, header.k, codings);
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
  if ((header.flags & ~Header::kPoison) != 0) {
    refuse(sender, "flags " + hex(header.flags) + " are unknown");
  }
  const auto value_part = message.subspan(sizeof(Header) + shape->index_bytes);
  const auto refused = [&](std::uint32_t* word) {
    const kernels::CheckValuesJob job{header.k, value_part, word};
    kernels::check_values(exec, codings.value, {&job, 1});
  };
  if (codings.value.coding != nullptr && kernels::answer(exec, refused) != 0) {
    refuse(sender, "its value part is not " + std::to_string(header.k) + " values of " +
                       value_text(header.value_coding) + " with zeros behind them");
  }
  return *shape;
}

/// Throws unless the sender makes the call that this rank makes.
void check_same_call(const Header& header, const Header& expected, int sender) {
  const auto refuse = [&](const std::string& what, const char* advice) {
    fail_usage("rank " + std::to_string(sender) + " and this rank differ in " + what + ": " +
               advice);
  };
  const auto numbers = [](const char* what, std::uint64_t theirs, std::uint64_t ours) {
    return what + (" (" + std::to_string(theirs)) + " there, " + std::to_string(ours) + " here)";
  };
  constexpr const char* kSameParameters =
      "all ranks must reduce the same parameter ids and counts in the same order";
  if (header.digest != expected.digest) refuse("their options", "give every rank the same Options");
  if (header.bucket != expected.bucket) refuse("the bucket", kSameParameters);
  if (header.call != expected.call)
    refuse(numbers("the number of the call", header.call, expected.call),
           "all ranks must make the same calls in the same order");
  if (header.part != expected.part)
    refuse(numbers("the part of the bucket", header.part, expected.part), kSameParameters);
}

/// Throws what is wrong with a message in host memory.
[[noreturn]] void diagnose(const Exec& exec, std::span<const std::byte> message,
                           const Expected& expected, int sender, const Codings& codings) {
  const std::uint64_t least_k = expected.least_k, most_k = expected.header.k;
  if (message.size() < sizeof(Header)) {
    refuse(sender, "it has " + std::to_string(message.size()) + " bytes, fewer than a header's " +
                       std::to_string(sizeof(Header)));
  }
  Header header;
  std::memcpy(&header, message.data(), sizeof header);
  if (header.magic == Header::kMagic && header.kind == Header::Kind::agreement &&
      message.size() == sizeof(Header) && checksum_of(exec, message, header) == header.checksum) {
    fail_usage("rank " + std::to_string(sender) +
               " is in the first call of a bucket and this rank in a later call of one: parameter "
               "ids, their counts or types, the operation or the order of calls differ");
  }
  const Shape shape = check_sound(exec, message, header, codings, sender);
  check_same_call(header, expected.header, sender);
  if (header.kind != expected.header.kind || header.owner != expected.header.owner ||
      header.count != expected.header.count || header.k < least_k || header.k > most_k) {
    refuse(sender, "it is of kind " + std::to_string(static_cast<int>(header.kind)) +
                       " for owner " + std::to_string(header.owner) + " with k " +
                       std::to_string(header.k) + " of count " + std::to_string(header.count) +
                       ", where kind " + std::to_string(static_cast<int>(expected.header.kind)) +
                       " for owner " + std::to_string(expected.header.owner) + " with k " +
                       (least_k < most_k ? "up to " : "") + std::to_string(most_k) + " of count " +
                       std::to_string(expected.header.count) + " is expected");
  }
  refuse(sender, "its index part is not " + std::string(shape.coding->name) + " of " +
                     std::to_string(header.k) + " ascending positions below " +
                     std::to_string(header.count));
}

/// Copies a message from the memory of exec.place and refuses it.
[[noreturn]] void refuse(const Exec& exec, const ReceivedMessage& incoming,
                         const Codings& codings) {
  const Workspace::Scope scope(*exec.workspace);
  const auto message = exec.workspace->take<std::byte>(incoming.message.size());
  kernels::read(exec, message, incoming.message);
  const Exec host{.threads = exec.threads, .workspace = exec.workspace};
  diagnose(host, message, incoming.expected, incoming.sender, codings);
}

bool has_unknown_k(const Expected& expected) {
  return expected.least_k != expected.header.k;
}

/// The shape that a message of k elements must have.
Shape expected_shape(const Expected& expected, std::uint64_t k, const Codings& codings) {
  return expected.shape && !has_unknown_k(expected) ? *expected.shape
                                                    : shape_of(expected.header.count, k, codings);
}

/// The header that a message of k elements must have.
Header expected_header(const Expected& expected, std::uint64_t k, const Shape& shape,
                       const Codings& codings) {
  Header header = expected.header;
  header.flags = 0;
  header.k = k;
  return complete(header, shape, codings);
}

/// The number of elements that each message carries, at most as many as are expected. Reads the
/// headers, which waits for a device, if one is unknown.
std::span<const std::uint64_t> find_k(const Exec& exec, std::span<const ReceivedMessage> incoming,
                                      const Codings& codings) {
  const auto k = exec.workspace->take<std::uint64_t>(incoming.size());
  for (std::size_t i = 0; i < k.size(); ++i) k[i] = incoming[i].expected.header.k;
  const auto is_unknown = [](const ReceivedMessage& message) {
    return has_unknown_k(message.expected);
  };
  if (std::ranges::none_of(incoming, is_unknown)) return k;
  const auto messages = exec.workspace->take<kernels::MessageCheck>(incoming.size());
  for (std::size_t i = 0; i < k.size(); ++i) {
    if (incoming[i].message.size() < sizeof(Header)) refuse(exec, incoming[i], codings);
    messages[i] = {.bytes = incoming[i].message,
                   .expected = std::bit_cast<kernels::HeaderBytes>(incoming[i].expected.header)};
  }
  Workspace& scratch = kernels::scratch_of(exec);
  const Workspace::Scope scope(scratch);
  const auto claimed = scratch.take<std::uint64_t>(incoming.size());
  kernels::claimed_k(exec, {.messages = messages, .layout = kHeaderLayout, .k = claimed});
  kernels::read(exec, std::as_writable_bytes(k), std::as_bytes(claimed));
  for (std::size_t i = 0; i < k.size(); ++i) {
    const Expected& expected = incoming[i].expected;
    if (k[i] < expected.least_k || k[i] > expected.header.k) refuse(exec, incoming[i], codings);
  }
  return k;
}

/// Decodes messages' index parts, those of one coding together.
void decode_indices(const Exec& exec, std::span<const Header> headers,
                    std::span<const kernels::DecodeJob> jobs) {
  const Workspace::Scope scope(*exec.workspace);
  const auto of_coding = exec.workspace->take<kernels::DecodeJob>(jobs.size());
  for (const IndexCoding* coding : index_codings()) {
    std::size_t found = 0;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const bool has_indices = !jobs[i].in.empty() || !jobs[i].index.empty();
      if (!has_indices || headers[i].index_coding != coding->id) continue;
      of_coding[found++] = jobs[i];
    }
    if (found > 0) coding->decode(exec, of_coding.first(found));
  }
}

/// Enqueues the checks of messages with k elements each, and the decoding of their indices. Returns
/// where kernels find the results.
std::span<const kernels::MessageCheck> enqueue_checks(
    const Exec& exec, std::span<const ReceivedMessage> incoming, std::span<const std::uint64_t> k,
    const Codings& codings, std::span<MessageView> views, const kernels::CallStatus* call) {
  Workspace& scratch = kernels::scratch_of(exec);
  const std::size_t count = incoming.size();
  const auto [headers, shapes, found, bytes, jobs, values] =
      exec.workspace->take<Header, Shape, kernels::MessageCheck, std::span<const std::byte>,
                           kernels::DecodeJob, kernels::CheckValuesJob>(count);
  for (std::size_t i = 0; i < count; ++i) {
    shapes[i] = expected_shape(incoming[i].expected, k[i], codings);
    headers[i] = expected_header(incoming[i].expected, k[i], shapes[i], codings);
    bytes[i] = incoming[i].message;
    // One of another size is not looked into, nor one that is never decoded.
    const bool fits = bytes[i].size() == shapes[i].bytes();
    const bool is_decoded = is_known(headers[i].kind) && headers[i].kind != Header::Kind::agreement;
    if (!fits || !is_decoded) refuse(exec, incoming[i], codings);
  }
  const auto room_of = [&](std::size_t i) {
    const Expected& expected = incoming[i].expected;
    const std::uint64_t listed = headers[i].k == headers[i].count ? 0 : headers[i].k;
    return expected.varies ? expected.room_k : listed;
  };
  std::size_t room = 0, decoding = 0;  // scratch of whatever k and coding messages may have
  for (std::size_t i = 0; i < count; ++i) {
    room += kernels::Arrays<std::uint32_t>::room(room_of(i));
    if (incoming[i].expected.varies) decoding += kernels::decode_scratch(exec, headers[i].count);
  }
  kernels::Arrays<std::uint32_t> positions(scratch, room);
  constexpr std::size_t kNotes = sizeof(std::uint64_t) + 2 * sizeof(std::uint32_t);
  const auto notes = scratch.take<std::byte>(count * kNotes);
  scratch.reserve(decoding);
  kernels::zero(exec, notes);
  auto* const sums = reinterpret_cast<std::uint64_t*>(notes.data());
  auto* const refused = reinterpret_cast<std::uint32_t*>(sums + count);
  for (std::size_t i = 0; i < count; ++i) {
    const Header& header = headers[i];
    const auto index = positions.next(room_of(i)).first(header.k == header.count ? 0 : header.k);
    views[i] = view_of(header, shapes[i], index, bytes[i], codings);
    std::uint32_t* const refusals = refused + 2 * i;
    values[i] = {
        .k = header.k, .coded = bytes[i].last(shapes[i].value_bytes), .refused = &refusals[0]};
    jobs[i] = {.count = header.count,
               .in = bytes[i].subspan(sizeof(Header), shapes[i].index_bytes),
               .index = index,
               .refused = &refusals[1],
               .key = codings.drawing_key(header, call)};
    found[i] = {.bytes = bytes[i],
                .expected = std::bit_cast<kernels::HeaderBytes>(header),
                .sum = sums + i,
                .refused = {&refusals[0], &refusals[1]},
                .number = static_cast<std::uint32_t>(incoming[i].sender)};
  }
  if (codings.value.coding != nullptr) kernels::check_values(exec, codings.value, values);
  decode_indices(exec, headers, jobs);
  kernels::checksums(exec, bytes, sums);
  return found;
}

}  // namespace

std::uint16_t decode_all(const Exec& exec, std::span<const ReceivedMessage> incoming,
                         const Codings& codings, std::span<MessageView> views,
                         kernels::CallStatus* call) {
  if (incoming.empty()) return 0;
  WINNOW_EXPECTS(exec.workspace != nullptr && !exec.workspace->is_device(),
                 "decoding a message needs Exec::workspace, of the host");
  for (const ReceivedMessage& message : incoming) {
    WINNOW_EXPECTS(is_aligned(message.message.data()),
                   "a message is decoded where it is 8-byte aligned");
  }
  const auto found =
      enqueue_checks(exec, incoming, find_k(exec, incoming, codings), codings, views, call);
  if (call != nullptr) {
    kernels::check_messages(exec, {.messages = found, .layout = kHeaderLayout, .status = call});
    return 0;
  }
  const auto status = kernels::scratch_of(exec).take<std::uint32_t>(incoming.size());
  kernels::check_headers(exec, {.messages = found, .layout = kHeaderLayout, .status = status});
  const auto answers = exec.workspace->take<std::uint32_t>(incoming.size());
  kernels::read(exec, std::as_writable_bytes(answers), std::as_bytes(status));
  std::uint16_t flags = 0;
  for (std::size_t i = 0; i < incoming.size(); ++i) {
    if ((answers[i] & kernels::kUnsound) != 0) refuse(exec, incoming[i], codings);
    if ((answers[i] & kernels::kPoisoned) == 0) continue;
    views[i].header.flags |= Header::kPoison;
    flags |= Header::kPoison;
  }
  return flags;
}

MessageView decode(const Exec& exec, std::span<const std::byte> message, const Expected& expected,
                   int sender, const Codings& codings) {
  const ReceivedMessage incoming{message, expected, sender};
  MessageView view;
  (void)decode_all(exec, {&incoming, 1}, codings, {&view, 1});
  return view;
}

}  // namespace winnow::compress
