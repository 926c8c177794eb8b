// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/device/message.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <string>
#include <winnow/error.hpp>

#include "kernels/cuda/checksum.hpp"
#include "kernels/cuda/eliasfano.hpp"
#include "kernels/cuda/indices.hpp"
#include "kernels/cuda/message_header.hpp"
#include "kernels/cuda/seal.hpp"
#include "kernels/cuda/value_coding.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/memory_ops.hpp"

namespace winnow::compress {
namespace {

using kernels::cuda::DeviceDecodeJob;
using kernels::cuda::HeaderBytes;

constexpr kernels::cuda::HeaderLayout kHeaderLayout{.flags_at = offsetof(Header, flags),
                                                    .poison = Header::kPoison,
                                                    .checksum_at = offsetof(Header, checksum)};

/// An index coding in device memory.
struct DeviceIndexCoding {
  const IndexCoding* coding;
  void (*seal)(const Exec& exec, const kernels::cuda::DeviceSealJob& job, std::uint64_t count,
               std::span<const std::uint32_t> index);
  std::size_t (*scratch)(std::uint64_t count, std::uint64_t k);  ///< of decode
  void (*decode)(const Exec& exec, const DeviceDecodeJob& job);
};

constexpr std::array kIndexCodings = {
    DeviceIndexCoding{.coding = &kRaw32Coding,
                      .seal = kernels::cuda::seal_raw32,
                      .scratch = [](std::uint64_t, std::uint64_t) { return std::size_t{0}; },
                      .decode = kernels::cuda::raw32_decode},
    DeviceIndexCoding{.coding = &kEliasFanoCoding,
                      .seal = kernels::cuda::seal_eliasfano,
                      .scratch = kernels::cuda::eliasfano_decode_scratch,
                      .decode = kernels::cuda::eliasfano_decode},
    DeviceIndexCoding{
        .coding = &kBitmapCoding,
        .seal = kernels::cuda::seal_bitmap,
        .scratch = [](std::uint64_t count,
                      std::uint64_t) { return kernels::cuda::bitmap_decode_scratch(count); },
        .decode = kernels::cuda::bitmap_decode},
};

/// Of a message that has indices.
const DeviceIndexCoding& index_coding_of(const Header& header) {
  for (const DeviceIndexCoding& known : kIndexCodings) {
    if (known.coding->id == header.index_coding) return known;
  }
  fail_usage("index coding " + std::string(index_coding_name(header.index_coding)) +
             " is not there yet in device memory");
}

bool has_open_k(const Expected& expected) {
  return expected.least_k != expected.header.k;
}

/// What decoding its indices takes, in multiples of what decoders are aligned to.
std::size_t decode_scratch(const DeviceIndexCoding& coding, const Header& header) {
  constexpr std::size_t kAlignment = 256;
  return (coding.scratch(header.count, header.k) + kAlignment - 1) / kAlignment * kAlignment;
}
std::size_t decode_scratch(const Header& header) {
  return header.k == header.count ? 0 : decode_scratch(index_coding_of(header), header);
}

/// The same of any message that is expected.
std::size_t most_decode_scratch(const Header& most) {
  std::size_t bytes = 0;
  for (const DeviceIndexCoding& coding : kIndexCodings) {
    bytes = std::max(bytes, decode_scratch(coding, most));
  }
  return 2 * bytes;  // of Elias-Fano fewer elements may take more, not twice as much
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

/// Zeros in device memory, in which kernels note what they find out about a message.
struct Notes {
  std::uint64_t* sum;
  std::span<std::uint32_t, 2> refused;
  std::span<std::byte> scratch;
};

/// Enqueues the opening of a message of the right size.
MessageView open_enqueued(const Exec& exec, const Header& header, std::span<std::uint32_t> index,
                          std::span<const std::byte> message, const Notes& notes,
                          const Codings& codings) {
  const MessageView view = view_of(header, index, message, codings);
  if (codings.value.coding != nullptr) {
    kernels::cuda::check_values(exec, codings.value, header.k, view.coded, notes.refused.data());
  }
  if (!view.index.empty()) {
    const auto parts = message.subspan(sizeof(Header));
    index_coding_of(header).decode(exec, {.count = header.count,
                                          .in = parts.first(parts.size() - view.coded.size()),
                                          .index = index,
                                          .refused = &notes.refused[1],
                                          .scratch = notes.scratch});
  }
  return view;
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

/// Enqueues the opening of messages that have k elements each. Returns what is known of them then,
/// and what the kernels will have noted.
std::span<const kernels::cuda::ReceivedMessage> look_into(const Exec& exec,
                                                          std::span<const Incoming> incoming,
                                                          std::span<const std::uint64_t> k,
                                                          const Codings& codings,
                                                          std::span<MessageView> views) {
  Workspace& scratch = *exec.device_workspace;
  const std::size_t count = incoming.size();
  const auto headers = exec.workspace->take<Header>(count);
  const auto found = exec.workspace->take<kernels::cuda::ReceivedMessage>(count);
  const auto bytes = exec.workspace->take<std::span<const std::byte>>(count);
  std::size_t decoding = 0, most_decoding = 0;
  for (std::size_t i = 0; i < count; ++i) {
    headers[i] = expected_header(incoming[i], k[i], codings);
    bytes[i] = incoming[i].message;
    // One of another size is not looked into: the host says what is wrong with it.
    const bool fits = bytes[i].size() == message_bytes(headers[i].count, headers[i].k, codings);
    if (!fits) refuse(exec, incoming[i], codings);
    const bool is_open = has_open_k(incoming[i].expected);
    decoding += decode_scratch(headers[i]);
    most_decoding +=
        is_open ? most_decode_scratch(incoming[i].expected.header) : decode_scratch(headers[i]);
  }
  const std::size_t of_one = sizeof(std::uint64_t) + 2 * sizeof(std::uint32_t);
  const auto zeros =
      scratch.take<std::byte>(most_decoding + count * of_one).first(decoding + count * of_one);
  kernels::zero(exec, zeros);
  std::byte* at = zeros.data();
  auto* const sums = reinterpret_cast<std::uint64_t*>(at + decoding);
  auto* const refused = reinterpret_cast<std::uint32_t*>(sums + count);
  for (std::size_t i = 0; i < count; ++i) {
    const Header& header = headers[i];
    const std::uint64_t most_k = incoming[i].expected.header.k;  // takes the same whatever k is
    const bool is_open = has_open_k(incoming[i].expected);
    const auto index = scratch.take<std::uint32_t>(is_open                    ? most_k
                                                   : header.k == header.count ? 0
                                                                              : header.k);
    const Notes notes{.sum = sums + i,
                      .refused = std::span<std::uint32_t, 2>(refused + 2 * i, 2),
                      .scratch = {at, decode_scratch(header)}};
    at += notes.scratch.size();
    views[i] = open_enqueued(exec, header, index.first(header.k == header.count ? 0 : header.k),
                             bytes[i], notes, codings);
    found[i] = {.bytes = bytes[i],
                .expected = std::bit_cast<HeaderBytes>(header),
                .sum = notes.sum,
                .refused = {notes.refused.data(), &notes.refused[1]},
                .number = static_cast<std::uint32_t>(incoming[i].sender)};
  }
  kernels::cuda::checksums(exec, bytes, sums);
  return found;
}

}  // namespace

MessageView seal_on_device(const Exec& exec, const Header& header,
                           std::span<const std::uint32_t> index,
                           const kernels::cuda::PoisonSources& poison, std::span<std::byte> out,
                           const Codings& codings, kernels::cuda::Verdict* verdict) {
  const Header whole = complete(header, codings);
  // Values in their own place were written there one by one.
  const bool is_padded = codings.exact() && header.k % 2 != 0;
  const kernels::cuda::DeviceSealJob job{
      .message = out,
      .header = std::bit_cast<HeaderBytes>(whole),
      .layout = kHeaderLayout,
      .poison = poison,
      .poisoned = verdict == nullptr ? nullptr : &verdict->spoiled,
      .padding = is_padded ? sizeof(float) : 0};
  if (header.k == header.count) {
    kernels::cuda::seal(exec, job);
  } else {
    index_coding_of(whole).seal(exec, job, header.count, index);
  }
  return view_of(whole, index, out, codings);
}

std::uint16_t open_on_device(const Exec& exec, std::span<const Incoming> incoming,
                             const Codings& codings, std::span<MessageView> views) {
  if (incoming.empty()) return 0;
  const auto found = look_into(exec, incoming, find_k(exec, incoming, codings), codings, views);
  const auto status = exec.device_workspace->take<std::uint32_t>(incoming.size());
  kernels::cuda::check_headers(exec, found, kHeaderLayout, status);
  const auto said = exec.workspace->take<std::uint32_t>(incoming.size());
  kernels::read(exec, std::as_writable_bytes(said), std::as_bytes(status));
  std::uint16_t flags = 0;
  for (std::size_t i = 0; i < incoming.size(); ++i) {
    if ((said[i] & kernels::cuda::kUnsound) != 0) refuse(exec, incoming[i], codings);
    if ((said[i] & kernels::cuda::kPoisoned) == 0) continue;
    views[i].header.flags |= Header::kPoison;
    flags |= Header::kPoison;
  }
  return flags;
}

void judge_on_device(const Exec& exec, std::span<const Incoming> incoming, const Codings& codings,
                     std::span<MessageView> views, kernels::cuda::Verdict& verdict) {
  if (incoming.empty()) return;
  const auto k = exec.workspace->take<std::uint64_t>(incoming.size());
  std::ranges::transform(incoming, k.begin(), [](const Incoming& message) {
    WINNOW_EXPECTS(!has_open_k(message.expected), "a message whose k is open is to be looked at");
    return message.expected.header.k;
  });
  const auto found = look_into(exec, incoming, k, codings, views);
  kernels::cuda::judge_messages(exec, found, kHeaderLayout, &verdict);
}

kernels::cuda::DeviceTerm device_term(const MessageView& message) {
  return kernels::cuda::device_term(term(message));
}

}  // namespace winnow::compress
