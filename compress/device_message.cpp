// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/device_message.hpp"

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
#include "kernels/cuda/value_coding.hpp"
#include "kernels/memory_ops.hpp"
#include "kernels/place_memory.hpp"

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
  void (*encode)(const Exec& exec, std::uint64_t count, std::span<const std::uint32_t> index,
                 std::span<std::byte> out);
  std::size_t (*scratch)(std::uint64_t count, std::uint64_t k);  ///< of decode
  void (*decode)(const Exec& exec, const DeviceDecodeJob& job);
};

constexpr std::array kIndexCodings = {
    DeviceIndexCoding{
        .coding = &kRaw32Coding,
        .encode = [](const Exec& exec, std::uint64_t, std::span<const std::uint32_t> index,
                     std::span<std::byte> out) { kernels::cuda::raw32_encode(exec, index, out); },
        .scratch = [](std::uint64_t, std::uint64_t) { return std::size_t{0}; },
        .decode = kernels::cuda::raw32_decode},
    DeviceIndexCoding{.coding = &kEliasFanoCoding,
                      .encode = kernels::cuda::eliasfano_encode,
                      .scratch = kernels::cuda::eliasfano_decode_scratch,
                      .decode = kernels::cuda::eliasfano_decode},
    DeviceIndexCoding{
        .coding = &kBitmapCoding,
        .encode = kernels::cuda::bitmap_encode,
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

/// Sees to it that indices of any message that is expected find room to be decoded in.
void reserve_decoding(Workspace& scratch, const Header& most) {
  std::size_t bytes = 0;
  for (const DeviceIndexCoding& coding : kIndexCodings) {
    bytes = std::max(bytes, coding.scratch(most.count, most.k));
  }
  scratch.reserve(2 * bytes);  // of Elias-Fano fewer elements may take more, not twice as much
}

/// What the device finds out about one message, which has k elements, and what it decodes.
class Opening {
 public:
  Opening(const Exec& exec, const Incoming& incoming, std::uint64_t k, const Codings& codings) {
    Header header = incoming.expected.header;
    header.flags = 0;
    header.k = k;
    header = complete(header, codings);
    const bool has_indices = header.k != header.count, is_open = has_open_k(incoming.expected);
    Workspace& scratch = *exec.device_workspace;
    const auto refused = scratch.take<std::uint32_t>(2);
    const auto index = scratch.take<std::uint32_t>(is_open       ? incoming.expected.header.k
                                                   : has_indices ? header.k
                                                                 : 0);
    if (is_open) reserve_decoding(scratch, incoming.expected.header);
    view_ = {.header = header,
             .index = index.first(has_indices ? header.k : 0),
             .value = {},
             .format = codings.value,
             .coded = {},
             .bytes = incoming.message};
    found_ = {.bytes = incoming.message, .expected = std::bit_cast<HeaderBytes>(header)};
    // One of another size is not looked into: the host says what is wrong with it.
    fits_ = incoming.message.size() == message_bytes(header.count, header.k, codings);
    if (!fits_) return;
    const auto parts = incoming.message.subspan(sizeof(Header));
    const bool has_values = codings.value.coding != nullptr;
    const std::size_t value_bytes = has_values ? kernels::value_bytes(codings.value, header.k) : 0;
    const std::size_t index_bytes = parts.size() - value_bytes;
    view_.coded = parts.subspan(index_bytes);
    if (codings.exact()) {
      view_.value = {reinterpret_cast<const float*>(view_.coded.data()),
                     static_cast<std::size_t>(header.k)};
    }
    if (has_values) {
      kernels::cuda::check_values(exec, codings.value, header.k, view_.coded, refused.data());
      found_.refused[0] = refused.data();
    }
    if (!has_indices) return;
    const DeviceIndexCoding& coding = index_coding_of(header);
    const Workspace::Scope scope(scratch);
    const auto room = scratch.take<std::byte>(coding.scratch(header.count, header.k));
    coding.decode(exec,
                  {.count = header.count,
                   .in = parts.first(index_bytes),
                   .index = {const_cast<std::uint32_t*>(view_.index.data()), view_.index.size()},
                   .refused = &refused[1],
                   .scratch = room});
    found_.refused[1] = &refused[1];
  }

  bool fits() const { return fits_; }
  const MessageView& view() const { return view_; }
  const kernels::cuda::ReceivedMessage& found() const { return found_; }

 private:
  MessageView view_;
  kernels::cuda::ReceivedMessage found_;
  bool fits_ = false;
};

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

/// Opens messages that have k elements each; a word for each of them becomes what is to be said of
/// it.
std::span<const std::uint32_t> look_into(const Exec& exec, std::span<const Incoming> incoming,
                                         std::span<const std::uint64_t> k, const Codings& codings,
                                         std::span<MessageView> views) {
  const auto found = exec.workspace->take<kernels::cuda::ReceivedMessage>(incoming.size());
  const auto bytes = exec.workspace->take<std::span<const std::byte>>(incoming.size());
  const auto sums = exec.device_workspace->take<std::uint64_t>(incoming.size());
  const auto status = exec.device_workspace->take<std::uint32_t>(incoming.size());
  for (std::size_t i = 0; i < incoming.size(); ++i) {
    const Opening opening(exec, incoming[i], k[i], codings);
    if (!opening.fits()) refuse(exec, incoming[i], codings);
    views[i] = opening.view();
    found[i] = opening.found();
    bytes[i] = incoming[i].message;
    found[i].sum = &sums[i];
  }
  kernels::cuda::checksums(exec, bytes, sums.data());
  kernels::cuda::check_headers(exec, found, kHeaderLayout, status);
  return status;
}

}  // namespace

void seal_on_device(const Exec& exec, const Header& header, std::span<const std::uint32_t> index,
                    const kernels::cuda::PoisonSources& poison, std::span<std::byte> out,
                    const Codings& codings) {
  const Header whole = complete(header, codings);
  const MessageLayout layout = lay_out(header.count, header.k, out, codings);
  if (header.k != header.count) {
    index_coding_of(whole).encode(exec, header.count, index, layout.index_part);
  }
  kernels::cuda::put_header(exec, out, std::bit_cast<HeaderBytes>(whole), kHeaderLayout, poison);
  kernels::cuda::checksum(exec, out,
                          reinterpret_cast<std::uint64_t*>(out.data() + kHeaderLayout.checksum_at));
}

std::uint16_t open_on_device(const Exec& exec, std::span<const Incoming> incoming,
                             const Codings& codings, std::span<MessageView> views) {
  if (incoming.empty()) return 0;
  const auto status = look_into(exec, incoming, find_k(exec, incoming, codings), codings, views);
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
  const auto status = look_into(exec, incoming, k, codings, views);
  kernels::cuda::judge_messages(exec, status, &verdict);
}

kernels::cuda::DeviceTerm device_term(const MessageView& message) {
  if (!message.value.empty()) {
    return kernels::cuda::device_term({.index = message.index, .value = message.value});
  }
  return kernels::cuda::device_term({.index = message.index,
                                     .format = message.format,
                                     .coded = message.coded,
                                     .count = message.header.k});
}

}  // namespace winnow::compress
