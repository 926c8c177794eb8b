// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/device/message.hpp"

#include <algorithm>
#include <bit>
#include <string>
#include <winnow/error.hpp>

#include "kernels/checksum.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/index_coding.hpp"
#include "kernels/memory_ops.hpp"
#include "kernels/message_header.hpp"
#include "kernels/seal.hpp"
#include "kernels/value_coding.hpp"

namespace winnow::compress {
namespace {

bool has_open_k(const Expected& expected) {
  return expected.least_k != expected.header.k;
}

/// What a message is to say of itself when it carries k elements.
Header expected_header(const Incoming& incoming, std::uint64_t k, const Codings& codings) {
  Header header = incoming.expected.header;
  header.flags = 0;
  header.k = k;
  return complete(header, codings);
}

/// A message that lies at `bytes`, before anything is known of its values and indices.
MessageView view_of(const Header& header, std::span<const std::uint32_t> index,
                    std::span<const std::byte> bytes, const Codings& codings) {
  const bool has_values = codings.value.coding != nullptr;
  const std::size_t value_bytes = has_values ? kernels::value_bytes(codings.value, header.k) : 0;
  const auto coded = bytes.last(value_bytes);
  std::span<const float> value;
  if (codings.exact()) {
    value = {reinterpret_cast<const float*>(coded.data()), static_cast<std::size_t>(header.k)};
  }
  return {.header = header,
          .index = header.k == header.count ? std::span<const std::uint32_t>() : index,
          .value = value,
          .format = codings.value,
          .coded = coded,
          .bytes = bytes};
}

/// Throws what the host has to say of a message that the device found unsound.
[[noreturn]] void refuse(const Exec& exec, const Incoming& incoming, const Codings& codings) {
  const Workspace::Scope scope(*exec.workspace);
  const auto message = exec.workspace->take<std::byte>(incoming.message.size());
  kernels::read(exec, message, incoming.message);
  const Exec host{.threads = exec.threads, .workspace = exec.workspace};
  (void)open(host, message, incoming.expected, incoming.sender, codings);
  throw CommError("message from rank " + std::to_string(incoming.sender) +
                  ": the device refuses it, and the host finds nothing wrong");
}

/// How many elements each message says that it carries, at most as many as are expected. Reads the
/// headers, which waits for the device, where it is not known.
std::span<const std::uint64_t> find_k(const Exec& exec, std::span<const Incoming> incoming,
                                      const Codings& codings) {
  const auto k = exec.workspace->take<std::uint64_t>(incoming.size());
  for (std::size_t i = 0; i < k.size(); ++i) k[i] = incoming[i].expected.header.k;
  const auto is_open = [](const Incoming& message) { return has_open_k(message.expected); };
  if (std::ranges::none_of(incoming, is_open)) return k;
  const auto headers = exec.workspace->take<Header>(incoming.size());
  const Workspace::Scope scope(*exec.device_workspace);
  const auto there = exec.device_workspace->take<Header>(incoming.size());
  for (std::size_t i = 0; i < k.size(); ++i) {
    if (incoming[i].message.size() < sizeof(Header)) refuse(exec, incoming[i], codings);
    kernels::copy(exec, std::as_writable_bytes(there.subspan(i, 1)),
                  incoming[i].message.first(sizeof(Header)));
  }
  kernels::read(exec, std::as_writable_bytes(headers), std::as_bytes(there));
  for (std::size_t i = 0; i < k.size(); ++i) {
    const Expected& expected = incoming[i].expected;
    const bool sound = headers[i].k >= expected.least_k && headers[i].k <= expected.header.k;
    if (!sound) refuse(exec, incoming[i], codings);
    k[i] = headers[i].k;
  }
  return k;
}

/// Enqueues the decoding of messages' index parts, those of one coding together; of a message that
/// carries all or nothing there is nothing to decode.
void decode_indices(const Exec& exec, std::span<const Header> headers,
                    std::span<const kernels::DecodeJob> jobs) {
  const Workspace::Scope scope(*exec.workspace);
  const auto of_coding = exec.workspace->take<kernels::DecodeJob>(jobs.size());
  for (const IndexCoding* coding : index_codings()) {
    std::size_t found = 0;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (jobs[i].index.empty() || headers[i].index_coding != coding->id) continue;
      of_coding[found++] = jobs[i];
    }
    if (found > 0) coding->decode(exec, of_coding.first(found));
  }
}

/// Enqueues the opening of messages that have k elements each. Returns what is known of them then,
/// and what the kernels will have noted.
std::span<const kernels::ReceivedMessage> look_into(const Exec& exec,
                                                    std::span<const Incoming> incoming,
                                                    std::span<const std::uint64_t> k,
                                                    const Codings& codings,
                                                    std::span<MessageView> views) {
  Workspace& scratch = *exec.device_workspace;
  const std::size_t count = incoming.size();
  const auto headers = exec.workspace->take<Header>(count);
  const auto found = exec.workspace->take<kernels::ReceivedMessage>(count);
  const auto bytes = exec.workspace->take<std::span<const std::byte>>(count);
  const auto jobs = exec.workspace->take<kernels::DecodeJob>(count);
  for (std::size_t i = 0; i < count; ++i) {
    headers[i] = expected_header(incoming[i], k[i], codings);
    bytes[i] = incoming[i].message;
    // One of another size is not looked into: the host says what is wrong with it.
    const bool fits = bytes[i].size() == message_bytes(headers[i].count, headers[i].k, codings);
    if (!fits) refuse(exec, incoming[i], codings);
  }
  constexpr std::size_t kNotes = sizeof(std::uint64_t) + 2 * sizeof(std::uint32_t);
  const auto notes = kernels::take_zeros<std::byte>(exec, count * kNotes);
  auto* const sums = reinterpret_cast<std::uint64_t*>(notes.data());
  auto* const refused = reinterpret_cast<std::uint32_t*>(sums + count);
  std::size_t decoding = 0;  // scratch of whatever k and coding messages may have
  for (std::size_t i = 0; i < count; ++i) {
    const Header& header = headers[i];
    const std::uint64_t listed = header.k == header.count ? 0 : header.k;
    const bool is_open = has_open_k(incoming[i].expected);
    const std::uint64_t room = is_open ? incoming[i].expected.header.k : listed;
    if (is_open) decoding += kernels::decode_scratch(exec, header.count);
    const auto index = scratch.take<std::uint32_t>(room).first(listed);
    views[i] = view_of(header, index, bytes[i], codings);
    std::uint32_t* const refusals = refused + 2 * i;
    if (codings.value.coding != nullptr) {
      kernels::check_values(exec, {.format = codings.value,
                                   .k = header.k,
                                   .coded = views[i].coded,
                                   .refused = &refusals[0]});
    }
    const auto parts = bytes[i].subspan(sizeof(Header));
    jobs[i] = {.count = header.count,
               .in = parts.first(parts.size() - views[i].coded.size()),
               .index = index,
               .refused = &refusals[1]};
    found[i] = {.bytes = bytes[i],
                .expected = std::bit_cast<kernels::HeaderBytes>(header),
                .sum = sums + i,
                .refused = {&refusals[0], &refusals[1]},
                .number = static_cast<std::uint32_t>(incoming[i].sender)};
  }
  scratch.reserve(decoding);
  decode_indices(exec, headers, jobs);
  kernels::checksums(exec, bytes, sums);
  return found;
}

}  // namespace

MessageView seal_on_device(const Exec& exec, const Header& header,
                           std::span<const std::uint32_t> index,
                           const kernels::PoisonSources& poison, std::span<std::byte> out,
                           const Codings& codings, kernels::CallStatus* verdict) {
  const Header whole = complete(header, codings);
  // Values in their own place were written there one by one.
  const bool is_padded = codings.exact() && header.k % 2 != 0;
  index_codings()[whole.index_coding]->seal(
      exec, {.message = out,
             .header = std::bit_cast<kernels::HeaderBytes>(whole),
             .layout = kHeaderLayout,
             .poison = poison,
             .poisoned = verdict == nullptr ? nullptr : &verdict->spoiled,
             .padding = is_padded ? sizeof(float) : 0,
             .count = header.count,
             .index = index});
  return view_of(whole, index, out, codings);
}

std::uint16_t open_on_device(const Exec& exec, std::span<const Incoming> incoming,
                             const Codings& codings, std::span<MessageView> views) {
  if (incoming.empty()) return 0;
  const auto found = look_into(exec, incoming, find_k(exec, incoming, codings), codings, views);
  const auto status = exec.device_workspace->take<std::uint32_t>(incoming.size());
  kernels::check_headers(exec, {.messages = found, .layout = kHeaderLayout, .status = status});
  const auto said = exec.workspace->take<std::uint32_t>(incoming.size());
  kernels::read(exec, std::as_writable_bytes(said), std::as_bytes(status));
  std::uint16_t flags = 0;
  for (std::size_t i = 0; i < incoming.size(); ++i) {
    if ((said[i] & kernels::kUnsound) != 0) refuse(exec, incoming[i], codings);
    if ((said[i] & kernels::kPoisoned) == 0) continue;
    views[i].header.flags |= Header::kPoison;
    flags |= Header::kPoison;
  }
  return flags;
}

void judge_on_device(const Exec& exec, std::span<const Incoming> incoming, const Codings& codings,
                     std::span<MessageView> views, kernels::CallStatus& verdict) {
  if (incoming.empty()) return;
  const auto k = exec.workspace->take<std::uint64_t>(incoming.size());
  std::ranges::transform(incoming, k.begin(), [](const Incoming& message) {
    WINNOW_EXPECTS(!has_open_k(message.expected), "a message whose k is open is to be looked at");
    return message.expected.header.k;
  });
  const auto found = look_into(exec, incoming, k, codings, views);
  kernels::judge_messages(exec, {.messages = found, .layout = kHeaderLayout, .status = &verdict});
}

}  // namespace winnow::compress
