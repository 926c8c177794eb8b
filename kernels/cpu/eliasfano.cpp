// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/eliasfano.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/finish_message.hpp"
#include "kernels/index_coding.hpp"

// Scalar code, compiled once per Highway target for the bit instructions that come with it
// (POPCNT with SSE4, TZCNT, BLSR and SHLX with AVX2). l is the number of low bits.
//
// Encoding packs the low bits of 8 indices into exactly l bytes, so every group of 8 starts at a
// whole byte and needs nothing from the one before; the high part is built a word at a time in a
// register. Decoding turns the ones of each high word into (place - i), the high bits of index i,
// several ones at a time without a branch; a second loop adds the low bits and checks the order.

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu {
namespace HWY_NAMESPACE {

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

/// Low bits of `index` from its first on, into bytes [out, end); the rest of them is zeroed.
void pack_bits(std::span<const std::uint32_t> index, std::uint32_t l, std::byte* out,
               std::byte* end) {
  const std::uint64_t mask = (std::uint64_t{1} << l) - 1;
  std::uint64_t word = 0;    // bits that wait, below bit `filled`
  std::uint32_t filled = 0;  // below 32 between indices
  for (const std::uint32_t i : index) {
    word |= (i & mask) << filled;
    filled += l;
    if (filled >= 32) {
      store(out, static_cast<std::uint32_t>(word));
      out += 4;
      word >>= 32;
      filled -= 32;
    }
  }
  for (; out < end; ++out, word >>= 8) *out = static_cast<std::byte>(word & 0xff);
}

void pack_low(std::span<const std::uint32_t> index, std::uint32_t l, std::span<std::byte> low) {
  std::byte* out = low.data();
  std::byte* const end = out + low.size();
  std::size_t i = 0;
  if (l >= 1 && l <= 16) {
    // Four indices fill the low 4 l bits of a word; the second four start at bit 4 l, that is at
    // byte l / 2, and inside it at bit 0 or 4: the nibble below is the end of the first four.
    const std::uint32_t nibble = 4 * l % 8;
    const std::uint64_t mask = (std::uint64_t{1} << l) - 1;
    const auto four = [&](const std::uint32_t* from) HWY_ATTR {
      return (from[0] & mask) | (from[1] & mask) << l | (from[2] & mask) << 2 * l |
             (from[3] & mask) << 3 * l;
    };
    for (; i + 8 <= index.size() && end - out >= 16; i += 8, out += l) {
      const std::uint64_t first = four(index.data() + i), second = four(index.data() + i + 4);
      store(out, first);
      store(out + l / 2, second << nibble | first >> (4 * l - 4) >> (4 - nibble));
    }
  }
  pack_bits(index.subspan(i), l, out, end);
}

void set_high(std::span<const std::uint32_t> index, std::uint32_t l, std::span<std::byte> high) {
  const std::uint64_t words = high.size() / 8;
  std::uint64_t at = 0, word = 0;
  for (std::uint64_t i = 0; i < index.size(); ++i) {
    const std::uint64_t place = (index[i] >> l) + i;
    for (; at != place / 64; ++at, word = 0) store(high.data() + 8 * at, word);
    word |= std::uint64_t{1} << (place % 64);
  }
  for (; at != words; ++at, word = 0) store(high.data() + 8 * at, word);
}

/// index[i] = high bits of index i. False where `high` has not as many ones as index elements.
bool read_high(std::span<const std::byte> high, std::span<std::uint32_t> index) {
  constexpr std::uint32_t kGroup = 8;  // ones taken without a branch
  const std::size_t k = index.size();
  std::size_t done = 0;
  for (std::size_t at = 0; at < high.size(); at += 8) {
    auto word = load<std::uint64_t>(high.data() + at);
    const auto ones = static_cast<std::size_t>(std::popcount(word));
    if (ones > k - done) return false;
    const std::size_t end = done + ones;
    auto place = static_cast<std::uint32_t>(8 * at - done);
    std::size_t i = done;
    // A group may write past the word's ones: the next word writes there again.
    for (; i < end && k - i >= kGroup; i += kGroup, place -= kGroup) {
      for (std::uint32_t g = 0; g < kGroup; ++g) {
        index[i + g] = place - g + static_cast<std::uint32_t>(std::countr_zero(word));
        word &= word - 1;
      }
    }
    for (; i < end; ++i, --place) {
      index[i] = place + static_cast<std::uint32_t>(std::countr_zero(word));
      word &= word - 1;
    }
    done = end;
  }
  return done == k;
}

/// index[i] = index[i] << l | low bits of index i. Returns whether the result ascends.
bool read_low(std::span<const std::byte> low, std::uint32_t l, std::span<std::uint32_t> index) {
  bool disorder = false;
  if (l == 0) {
    for (std::size_t i = 1; i < index.size(); ++i) disorder |= index[i] <= index[i - 1];
    return !disorder;
  }
  const std::uint64_t mask = (std::uint64_t{1} << l) - 1;
  const std::uint64_t last = low.size() - 8;  // of the places where a word can be read
  std::uint64_t previous = 0, bit = 0;        // previous: one more than the index before
  for (std::uint32_t& element : index) {
    const std::uint64_t at = std::min(bit / 8, last);
    const std::uint64_t bits = load<std::uint64_t>(low.data() + at) >> (bit - 8 * at) & mask;
    const std::uint64_t position = std::uint64_t{element} << l | bits;
    disorder |= position < previous;
    previous = position + 1;
    element = static_cast<std::uint32_t>(position);
    bit += l;
  }
  return !disorder;
}

void encode(EliasFanoShape shape, std::span<const std::uint32_t> index, std::span<std::byte> out) {
  pack_low(index, shape.low_bits, out.first(shape.low_bytes));
  set_high(index, shape.low_bits, out.subspan(shape.low_bytes));
}

bool decode(EliasFanoShape shape, std::uint64_t count, std::span<const std::byte> in,
            std::span<std::uint32_t> index) {
  const auto low = in.first(shape.low_bytes), high = in.subspan(shape.low_bytes);
  if (!read_high(high, index)) return false;
  if (index.empty()) return true;
  // High bits never fall, so the last bounds them all and nothing below leaves 32 bits.
  if (index.back() > (count - 1) >> shape.low_bits) return false;
  if (!read_low(low, shape.low_bits, index) || index.back() >= count) return false;
  const std::uint64_t used = index.size() * shape.low_bits % 64;  // bits of the last low word
  return used == 0 || load<std::uint64_t>(low.data() + low.size() - 8) >> used == 0;
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

namespace {
HWY_EXPORT(encode);
HWY_EXPORT(decode);
}  // namespace

void finish_eliasfano(const Exec& exec, const FinishJob& job) {
  const EliasFanoShape shape = eliasfano_shape(job.count, job.index.size());
  HWY_DYNAMIC_DISPATCH(encode)
  (shape, job.index, job.message.subspan(kHeaderBytes, shape.bytes()));
  cpu::finish_message(exec, job);
}

void eliasfano_decode(const Exec&, std::span<const DecodeJob> jobs) {
  for (const DecodeJob& job : jobs) {
    const EliasFanoShape shape = eliasfano_shape(job.count, job.index.size());
    if (!HWY_DYNAMIC_DISPATCH(decode)(shape, job.count, job.in, job.index)) *job.refused = 1;
  }
}

}  // namespace winnow::kernels::cpu
#endif
