// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/checksum.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "kernels/cpu/parallel.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/checksum.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// The weighted sum without a multiplication. Words are read in rows of L = 4 * lanes, from `begin`;
// for each of the L columns c
//
//   plain    sum over rows t = 0..T-1 of w[t * L + c]
//   running  sum over rows of plain after row t, so w[t * L + c] counts T - t times
//
// and T * plain - running = sum of t * w[t * L + c], so that with i = begin + t * L + c
//
//   sum of w[i] * (2 i + 1) = sum over c of 2 L (T * plain - running) + (2 (begin + c) + 1) * plain

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The part of the checksum that words [begin, end) of `bytes` make.
std::uint64_t sum_words(const std::byte* bytes, std::uint64_t begin, std::uint64_t end) {
  const hn::ScalableTag<std::uint64_t> d64;
  const hn::Rebind<std::uint32_t, decltype(d64)> d32;
  const std::size_t lanes = hn::Lanes(d64), row = 4 * lanes;
  const auto load = [&](std::uint64_t word) HWY_ATTR {
    return hn::PromoteTo(d64, hn::LoadU(d32, reinterpret_cast<const std::uint32_t*>(bytes) + word));
  };
  auto plain0 = hn::Zero(d64), plain1 = plain0, plain2 = plain0, plain3 = plain0;
  auto running0 = plain0, running1 = plain0, running2 = plain0, running3 = plain0;
  const std::uint64_t rows = (end - begin) / row;
  for (std::uint64_t t = 0; t < rows; ++t) {
    const std::uint64_t at = begin + t * row;
    plain0 = hn::Add(plain0, load(at));
    plain1 = hn::Add(plain1, load(at + lanes));
    plain2 = hn::Add(plain2, load(at + 2 * lanes));
    plain3 = hn::Add(plain3, load(at + 3 * lanes));
    running0 = hn::Add(running0, plain0);
    running1 = hn::Add(running1, plain1);
    running2 = hn::Add(running2, plain2);
    running3 = hn::Add(running3, plain3);
  }
  std::array<std::uint64_t, 4 * HWY_MAX_BYTES / 8> plain, running;
  hn::StoreU(plain0, d64, plain.data());
  hn::StoreU(plain1, d64, plain.data() + lanes);
  hn::StoreU(plain2, d64, plain.data() + 2 * lanes);
  hn::StoreU(plain3, d64, plain.data() + 3 * lanes);
  hn::StoreU(running0, d64, running.data());
  hn::StoreU(running1, d64, running.data() + lanes);
  hn::StoreU(running2, d64, running.data() + 2 * lanes);
  hn::StoreU(running3, d64, running.data() + 3 * lanes);
  std::uint64_t sum = 0;
  for (std::size_t c = 0; c < row; ++c) {
    sum += 2 * row * (rows * plain[c] - running[c]) + (2 * (begin + c) + 1) * plain[c];
  }
  for (std::uint64_t i = begin + rows * row; i < end; ++i) {
    std::uint32_t word;
    std::memcpy(&word, bytes + 4 * i, 4);
    sum += word * (2 * i + 1);
  }
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

namespace {
constexpr std::uint64_t kWordsAThread = 1 << 18;  // fewer are not worth waking a thread
HWY_EXPORT(sum_words);
}  // namespace

namespace {

std::uint64_t checksum(int threads, std::span<const std::byte> bytes) {
  std::atomic<std::uint64_t> sum{0};  // of integers: any order gives the same
  const std::uint64_t words = bytes.size() / 4;
  const auto useful = static_cast<int>(std::min<std::uint64_t>(1 + words / kWordsAThread, 4096));
  for_each_range(std::min(threads, useful), words, [&](std::uint64_t begin, std::uint64_t end) {
    sum.fetch_add(HWY_DYNAMIC_DISPATCH(sum_words)(bytes.data(), begin, end),
                  std::memory_order_relaxed);
  });
  return sum.load(std::memory_order_relaxed);
}

}  // namespace

void checksums(const Exec& exec, std::span<const std::span<const std::byte>> messages,
               std::uint64_t* sums) {
  for (const std::span<const std::byte> message : messages) {
    *sums++ = checksum(exec.threads, message);
  }
}

}  // namespace winnow::kernels::cpu
#endif
