// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cpu/finish_message.hpp"
#include "kernels/index_coding.hpp"

namespace winnow::kernels::reference {

namespace {

bool bit(std::span<const std::byte> bytes, std::uint64_t place) {
  return (bytes[place / 8] >> (place % 8) & std::byte{1}) != std::byte{0};
}

void set_bit(std::span<std::byte> bytes, std::uint64_t place) {
  bytes[place / 8] |= std::byte{1} << (place % 8);
}

bool read_eliasfano(const DecodeJob& job) {
  const auto [count, in, index, refused, key] = job;
  const EliasFanoShape shape = eliasfano_shape(count, index.size());
  const std::uint32_t l = shape.low_bits;
  const auto low = in.first(shape.low_bytes), high = in.subspan(shape.low_bytes);
  std::uint64_t i = 0;
  for (std::uint64_t place = 0; place < 8 * high.size(); ++place) {
    if (!bit(high, place)) continue;
    if (i == index.size()) return false;
    std::uint64_t position = (place - i) << l;
    for (std::uint32_t b = 0; b < l; ++b) position |= std::uint64_t{bit(low, i * l + b)} << b;
    if (position >= count) return false;
    if (i > 0 && position <= index[i - 1]) return false;
    index[i++] = static_cast<std::uint32_t>(position);
  }
  if (i != index.size()) return false;
  for (std::uint64_t place = i * l; place < 8 * low.size(); ++place) {
    if (bit(low, place)) return false;
  }
  return true;
}

void encode(const EliasFanoShape& shape, std::span<const std::uint32_t> index,
            std::span<std::byte> out) {
  const std::uint32_t l = shape.low_bits;
  const auto low = out.first(shape.low_bytes), high = out.subspan(shape.low_bytes);
  std::fill(out.begin(), out.end(), std::byte{0});
  for (std::uint64_t i = 0; i < index.size(); ++i) {
    for (std::uint32_t b = 0; b < l; ++b) {
      if ((index[i] >> b & 1) != 0) set_bit(low, i * l + b);
    }
    set_bit(high, (index[i] >> l) + i);
  }
}

}  // namespace

void finish_eliasfano(const Exec& exec, const FinishJob& job) {
  const EliasFanoShape shape = eliasfano_shape(job.count, job.index.size());
  encode(shape, job.index, job.message.subspan(kHeaderBytes, shape.bytes()));
  cpu::finish_message(exec, job);
}

void eliasfano_decode(const Exec&, std::span<const DecodeJob> jobs) {
  for (const DecodeJob& job : jobs)
    if (!read_eliasfano(job)) *job.refused = 1;
}

}  // namespace winnow::kernels::reference
