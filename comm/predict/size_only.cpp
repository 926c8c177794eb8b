// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/predict/size_only.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <winnow/error.hpp>

#include "comm/schedule/pass_bytes.hpp"
#include "compress/partial.hpp"

namespace winnow::comm {

Nowhere::Nowhere(std::size_t bytes) : memory_(nullptr), size_(std::max<std::size_t>(bytes, 1)) {
  void* const memory = ::mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  WINNOW_EXPECTS(memory != MAP_FAILED,
                 "no " + std::to_string(size_) + " bytes of address space for so long a bucket");
  memory_ = static_cast<std::byte*>(memory);
}

Nowhere::~Nowhere() {
  ::munmap(memory_, size_);
}

std::span<std::byte> Nowhere::bytes(std::size_t count) const {
  WINNOW_EXPECTS(count <= size_, std::to_string(count) + " bytes of " + std::to_string(size_));
  return {memory_, count};
}

std::span<float> Nowhere::floats(std::size_t count) const {
  return {reinterpret_cast<float*>(bytes(count * sizeof(float)).data()), count};
}

/// Bytes that coding or decoding k elements moves.
double SizeOnly::entries(std::uint64_t k) const {
  return keeps_all() ? 0 : kCoded * static_cast<double>(k);
}

void SizeOnly::encode(const Exec&, const compress::EncodeJob& job,
                      compress::EncodeResult& out) const {
  const compress::Part& part = job.part;
  const std::uint32_t owners = part.partition.owners();
  const bool shared = part.self != compress::Part::kNobody;
  const std::uint64_t own = shared ? part.partition.local_count(part.self) : 0;
  const std::uint64_t foreign = part.count - own;
  std::uint64_t k_left = part.k, foreign_left = foreign;
  double bytes = (keeps_all() ? kQuantizePass : kSelectPass) * static_cast<double>(part.count) +
                 entries(part.k);
  for (std::uint32_t owner = 0; owner < owners; ++owner) {
    if (owner == part.self) continue;
    const std::uint64_t count = part.partition.local_count(owner);
    std::uint64_t k = count;
    if (!keeps_all()) {
      // Each owner takes its share of what is left, so that the shares add up.
      k = foreign_left == 0 ? 0 : k_left * count / foreign_left;
      k_left -= k;
      foreign_left -= count;
    }
    auto& message = out.messages[owner];
    message = message.first(compress::message_bytes(count, k, codings()));
    bytes += static_cast<double>(message.size());
  }
  out.kept = part.k;
  rank_.pass(bytes);
}

std::span<std::byte> SizeOnly::encode_sums(const Exec&, const compress::EncodeJob& job,
                                           std::span<const compress::MessageView> contributions,
                                           compress::Owned&, std::span<std::byte> out) const {
  const compress::Part& part = job.part;
  const auto count = static_cast<double>(part.partition.local_count(part.self));
  double bytes = entries(part.owner_k[part.self]) + static_cast<double>(out.size());
  if (keeps_all()) {
    // acc and the rest of the sums once each, and about one byte per received element.
    bytes += (3 * sizeof(float) + static_cast<double>(contributions.size())) * count;
  } else {
    // Others keep as many of these positions as this rank keeps of theirs.
    bytes += (kScattered + kCoded) * static_cast<double>(part.k);
  }
  rank_.pass(bytes);
  return out;
}

void SizeOnly::select(const Exec&, const compress::EncodeJob& job, std::span<std::byte> out) const {
  rank_.pass(kSelectPass * static_cast<double>(job.part.count) +
             entries(job.part.owner_k[job.part.self]) + static_cast<double>(out.size()));
}

void SizeOnly::take(const Exec&, const compress::EncodeJob&, const compress::Owned&,
                    const compress::Taken& taken, std::span<std::byte> out) const {
  const double value = keeps_all() ? 3 * sizeof(float) : kScattered + kCoded;
  rank_.pass(value * static_cast<double>(taken.value.size()) + static_cast<double>(out.size()));
}

void SizeOnly::add(const Exec&, const compress::EncodeJob&,
                   std::span<const compress::MessageView> terms,
                   const compress::Addition& out) const {
  // Every term and the sums once each; coded values take a few bytes at most.
  rank_.pass(sizeof(float) * static_cast<double>((terms.size() + 1) * out.sum.size()) +
             static_cast<double>(out.message.size()));
}

std::span<std::byte> SizeOnly::take_buffer(const Exec&, std::size_t bytes) const {
  return nowhere_.bytes(bytes);
}

std::uint16_t SizeOnly::open_all(const Exec&, std::span<const compress::Incoming> incoming,
                                 std::span<compress::MessageView> views,
                                 kernels::CallStatus*) const {
  std::ranges::transform(incoming, views.begin(), [this](const compress::Incoming& message) {
    return open_one(message.message, message.expected.header);
  });
  return 0;
}

compress::MessageView SizeOnly::open_one(std::span<const std::byte> message,
                                         const compress::Header& header) const {
  compress::MessageView view{
      .header = header, .index = {}, .value = {}, .format = {}, .coded = {}, .bytes = message};
  std::uint64_t& k = view.header.k;
  if (view.header.kind != compress::Header::Kind::partial) return view;
  // The fewest elements whose message has that many bytes.
  std::uint64_t low = 0;
  while (low < k) {
    const std::uint64_t middle = low + (k - low) / 2;
    if (compress::partial_bytes(view.header.count, middle, codings()) < message.size()) {
      low = middle + 1;
    } else {
      k = middle;
    }
  }
  return view;
}

compress::MessageView SizeOnly::merge(const Exec&, const compress::Header& header,
                                      const compress::MessageView& first,
                                      const compress::MessageView& second) const {
  const auto count = static_cast<double>(header.count);
  const auto a = static_cast<double>(first.header.k), b = static_cast<double>(second.header.k);
  const double both = header.count == 0 ? 0 : a * b / count;
  compress::MessageView sum{.header = header, .index = {}, .value = {}, .format = {}, .coded = {}};
  const auto k = std::min(static_cast<std::uint64_t>(std::llround(a + b - both)), header.k);
  sum.header.k = compress::shortest_k(header.count, k, compress::partial_codings(codings()));
  // Lists are decoded and merged; whole messages are added.
  rank_.pass(sum.carries_all() ? 3 * sizeof(float) * count : kCoded * (2 * a + b));
  return sum;
}

void SizeOnly::pack(const Exec&, compress::MessageView& sum, std::span<std::byte> out) const {
  sum.bytes = out.first(compress::most_bytes(sum.header, codings()));
  rank_.pass(2 * static_cast<double>(sum.bytes.size()));
}

void SizeOnly::sum_gradients(const Exec&, std::span<const kernels::Term> gradients,
                             std::span<float> sum) const {
  rank_.pass(sizeof(float) * static_cast<double>((gradients.size() + 1) * sum.size()));
}

bool SizeOnly::write_outcome(const Exec&, const compress::Part& part,
                             const compress::Outcome& outcome) const {
  std::uint64_t k = 0;
  for (const compress::MessageView& message : outcome.messages) k += message.header.k;
  if (!keeps_all()) rank_.pass(sizeof(float) * static_cast<double>(part.count));
  write(part.count, k);
  return true;
}

void SizeOnly::write_sum(std::uint64_t count) const {
  rank_.pass(2 * sizeof(float) * static_cast<double>(count));
}

void SizeOnly::write(std::uint64_t count, std::uint64_t k) const {
  rank_.pass(keeps_all() ? sizeof(float) * static_cast<double>(count) + static_cast<double>(k)
                         : (kScattered + kCoded) * static_cast<double>(k));
}

}  // namespace winnow::comm
