// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/message_header.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/arithmetic/checksum.hpp"

namespace winnow::kernels::cpu {

namespace {

/// The field at a byte of a header.
template <class T>
T field(const HeaderBytes& header, std::size_t at) {
  T value;
  std::memcpy(&value, header.data() + at, sizeof value);
  return value;
}

/// The header without what may differ from the one that is expected.
HeaderBytes compared(HeaderBytes header, const HeaderLayout& layout) {
  const auto flags =
      static_cast<std::uint16_t>(field<std::uint16_t>(header, layout.flags_at) & ~layout.poison);
  std::memcpy(header.data() + layout.flags_at, &flags, sizeof flags);
  std::fill_n(header.data() + layout.checksum_at, sizeof(std::uint64_t), std::byte{0});
  return header;
}

std::uint32_t status_of(const MessageCheck& message, const HeaderLayout& layout) {
  HeaderBytes header;
  std::copy_n(message.bytes.data(), header.size(), header.data());
  const bool poisoned = (field<std::uint16_t>(header, layout.flags_at) & layout.poison) != 0;
  // The checksum counts as zero: what its own words add to the sum is taken off again.
  const auto checksum = field<std::uint64_t>(header, layout.checksum_at);
  const std::uint64_t sum =
      *message.sum - sum_of_pair(layout.checksum_at / sizeof checksum, checksum);
  const bool refused = std::ranges::any_of(
      message.refused, [](const std::uint32_t* word) { return word != nullptr && *word != 0; });
  const bool sound =
      checksum == sum && compared(header, layout) == compared(message.expected, layout) && !refused;
  return (poisoned ? kPoisoned : 0) | (sound ? 0 : kUnsound);
}

}  // namespace

void claimed_k(const Exec&, const ClaimedKJob& job) {
  for (std::size_t m = 0; m < job.messages.size(); ++m) {
    std::memcpy(&job.k[m], job.messages[m].bytes.data() + job.layout.k_at, sizeof job.k[m]);
  }
}

void check_headers(const Exec&, const CheckHeadersJob& job) {
  for (std::size_t m = 0; m < job.messages.size(); ++m) {
    job.status[m] = status_of(job.messages[m], job.layout);
  }
}

void check_messages(const Exec&, const CheckMessagesJob& job) {
  for (MessageCheck message : job.messages) {
    std::memcpy(message.expected.data() + job.layout.call_at, &job.status->call,
                sizeof job.status->call);
    const std::uint32_t status = status_of(message, job.layout);
    if (status != 0) job.status->spoiled = 1;
    if ((status & kUnsound) != 0) {
      job.status->unsound = std::max(job.status->unsound, ~message.number);
    }
  }
}

}  // namespace winnow::kernels::cpu
