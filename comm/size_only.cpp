// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/size_only.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <winnow/error.hpp>

namespace winnow::comm {

namespace {

// What passes read and write, in bytes.
constexpr double kSelectPass = 16;    // an element: gradient and residual, both read and written
constexpr double kQuantizePass = 12;  // an element: the gradient is only read
constexpr double kScattered = 128;  // an element far from the last: its cache line, there and back
constexpr double kCoded = 16;       // an element of a list: index and value, as they are and coded

}  // namespace

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

/// Bytes of coding or decoding k elements.
double SizeOnly::entries(std::uint64_t k) const {
  return everything() ? 0 : kCoded * static_cast<double>(k);
}

void SizeOnly::encode(const Exec&, const compress::EncodeJob& job, compress::Outbox& out) const {
  const compress::Part& part = job.part;
  const std::uint32_t owners = part.partition.owners();
  const bool shared = part.self != compress::Part::kNobody;
  const std::uint64_t own = shared ? part.partition.local_count(part.self) : 0;
  const std::uint64_t foreign = part.count - own;
  std::uint64_t k_left = part.k, foreign_left = foreign;
  double bytes = (everything() ? kQuantizePass : kSelectPass) * static_cast<double>(part.count) +
                 entries(part.k);
  for (std::uint32_t owner = 0; owner < owners; ++owner) {
    if (owner == part.self) continue;
    const std::uint64_t count = part.partition.local_count(owner);
    std::uint64_t k = count;
    if (!everything()) {
      // Each its share of what is left, so that the shares add up.
      k = foreign_left == 0 ? 0 : k_left * count / foreign_left;
      k_left -= k;
      foreign_left -= count;
    }
    auto& message = out.messages[owner];
    message = message.first(compress::message_bytes(count, k, codings()));
    bytes += static_cast<double>(message.size());
  }
  rank_.pass(bytes);
}

void SizeOnly::encode_sums(const Exec&, const compress::EncodeJob& job,
                           std::span<const compress::MessageView> contributions, compress::Owned&,
                           std::span<std::byte> out) const {
  const compress::Part& part = job.part;
  const auto count = static_cast<double>(part.partition.local_count(part.self));
  double bytes = entries(part.owner_k[part.self]) + static_cast<double>(out.size());
  if (everything()) {
    // acc and what is left of the sums once each, and a byte or so an element of what came.
    bytes += (3 * sizeof(float) + static_cast<double>(contributions.size())) * count;
  } else {
    // What others keep of these positions is what this rank keeps of theirs.
    bytes += (kScattered + kCoded) * static_cast<double>(part.k);
  }
  rank_.pass(bytes);
}

std::span<std::byte> SizeOnly::room(const Exec&, std::size_t bytes) const {
  return nowhere_.bytes(bytes);
}

compress::MessageView SizeOnly::open(const Exec&, std::span<const std::byte>,
                                     const compress::Header& expected, int) const {
  return {.header = expected, .index = {}, .value = {}, .format = {}, .coded = {}};
}

void SizeOnly::write(std::uint64_t count, std::uint64_t k) const {
  rank_.pass(everything() ? sizeof(float) * static_cast<double>(count) + static_cast<double>(k)
                          : (kScattered + kCoded) * static_cast<double>(k));
}

}  // namespace winnow::comm
