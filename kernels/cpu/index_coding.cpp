// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/index_coding.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace winnow::kernels::cpu {

namespace {

bool read_raw32(const DecodeJob& job) {
  const auto [count, in, index, refused, key] = job;
  const std::size_t used = index.size_bytes();
  std::uint64_t least = 0;  // that the next index may be
  bool sound = true;
  for (std::size_t i = 0; i < index.size(); ++i) {
    std::memcpy(&index[i], in.data() + 4 * i, 4);
    sound = sound && index[i] >= least && index[i] < count;
    least = std::uint64_t{index[i]} + 1;
  }
  return sound &&
         std::ranges::all_of(in.subspan(used), [](std::byte b) { return b == std::byte{}; });
}

bool read_bitmap(const DecodeJob& job) {
  const auto [count, in, index, refused, key] = job;
  std::size_t found = 0;
  for (std::size_t at = 0; at < in.size(); at += 8) {
    std::uint64_t word;
    std::memcpy(&word, in.data() + at, 8);
    if (static_cast<std::size_t>(std::popcount(word)) > index.size() - found) return false;
    for (; word != 0; word &= word - 1) {
      index[found++] =
          static_cast<std::uint32_t>(8 * at + static_cast<std::size_t>(std::countr_zero(word)));
    }
  }
  return found == index.size() && (found == 0 || index[found - 1] < count);
}

void decode_all(std::span<const DecodeJob> jobs, bool (*read)(const DecodeJob& job)) {
  for (const DecodeJob& job : jobs) {
    if (!read(job)) *job.refused = 1;
  }
}

}  // namespace

void encode_raw32(std::span<const std::uint32_t> index, std::span<std::byte> out) {
  const auto used = std::as_bytes(index);
  std::copy(used.begin(), used.end(), out.begin());
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(used.size()), out.end(), std::byte{0});
}

void encode_bitmap(std::span<const std::uint32_t> index, std::span<std::byte> out) {
  std::ranges::fill(out, std::byte{0});
  for (const std::uint32_t position : index) {
    out[position / 8] |= std::byte{1} << position % 8;
  }
}

void raw32_decode(const Exec&, std::span<const DecodeJob> jobs) {
  decode_all(jobs, read_raw32);
}

void bitmap_decode(const Exec&, std::span<const DecodeJob> jobs) {
  decode_all(jobs, read_bitmap);
}

void seeded_decode(const Exec&, std::span<const DecodeJob> jobs) {
  for (const DecodeJob& job : jobs) {
    for (std::uint64_t i = 0; i < job.index.size(); ++i) {
      job.index[i] = drawn_index(job.count, job.index.size(), job.key, i);
    }
  }
}

}  // namespace winnow::kernels::cpu
