// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Included once for each Highway target.
#if defined(WINNOW_KERNELS_CPU_VALUES_PACKING) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_VALUES_PACKING
#undef WINNOW_KERNELS_CPU_VALUES_PACKING
#else
#define WINNOW_KERNELS_CPU_VALUES_PACKING
#endif

#include <hwy/highway.h>

#include <bit>
#include <cstring>

#include "kernels/cpu/values/body.hpp"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Lanes of one step: at most 16, so that the 16 partial sums of a mean are whole vectors.
using DF = hn::CappedTag<float, 16>;
using DU = hn::RebindToUnsigned<DF>;
using DI = hn::RebindToSigned<DF>;
using VF = hn::Vec<DF>;
using VU = hn::Vec<DU>;

#if HWY_TARGET != HWY_SCALAR  // which has plain_body.hpp

/// Puts the codes of one unit, a vector a time, lanes of 32 bits each. Codes of 16 bits and more
/// have zeros above; those of 2, 4 and 8 are integers within their range; of 1 only bit 31 is read.
template <std::uint32_t kBits>
struct Packer;

/// Gets them back: zeros above codes of 16 bits, integers of 2, 4 and 8, of 1 bit 31 of lanes whose
/// other bits are zero.
template <std::uint32_t kBits>
struct Unpacker;

template <>
struct Packer<0> {
  std::byte* codes;
  HWY_INLINE void put(std::size_t, VU) const {}
  HWY_INLINE void finish() {}
};

template <>
struct Unpacker<0> {
  const std::byte* codes;
  HWY_INLINE VU get(std::size_t) const { return hn::Zero(DU()); }
};

template <>
struct Packer<32> {
  std::byte* codes;
  HWY_INLINE void put(std::size_t lane, VU code) const {
    hn::StoreU(code, DU(), reinterpret_cast<std::uint32_t*>(codes) + lane);
  }
  HWY_INLINE void finish() {}
};

template <>
struct Unpacker<32> {
  const std::byte* codes;
  HWY_INLINE VU get(std::size_t lane) const {
    return hn::LoadU(DU(), reinterpret_cast<const std::uint32_t*>(codes) + lane);
  }
};

template <>
struct Packer<16> {
  std::byte* codes;
  HWY_INLINE void put(std::size_t lane, VU code) const {
    const hn::Rebind<std::uint16_t, DF> d;
    hn::StoreU(hn::TruncateTo(d, code), d, reinterpret_cast<std::uint16_t*>(codes) + lane);
  }
  HWY_INLINE void finish() {}
};

template <>
struct Unpacker<16> {
  const std::byte* codes;
  HWY_INLINE VU get(std::size_t lane) const {
    const hn::Rebind<std::uint16_t, DF> d;
    return hn::PromoteTo(DU(), hn::LoadU(d, reinterpret_cast<const std::uint16_t*>(codes) + lane));
  }
};

template <>
struct Packer<8> {
  std::byte* codes;
  HWY_INLINE void put(std::size_t lane, VU code) const {
    // Not TruncateTo: Highway 1.0.3 gets it wrong for AVX3_DL.
    const hn::Rebind<std::int8_t, DF> d;
    hn::StoreU(hn::DemoteTo(d, hn::BitCast(DI(), code)), d,
               reinterpret_cast<std::int8_t*>(codes) + lane);
  }
  HWY_INLINE void finish() {}
};

template <>
struct Unpacker<8> {
  const std::byte* codes;
  HWY_INLINE VU get(std::size_t lane) const {
    const hn::Rebind<std::int8_t, DF> d;
    const auto code = hn::LoadU(d, reinterpret_cast<const std::int8_t*>(codes) + lane);
    return hn::BitCast(DU(), hn::PromoteTo(DI(), code));
  }
};

template <>
struct Packer<4> {
  std::byte* codes;
  HWY_INLINE void put(std::size_t lane, VU code) const {
    const hn::Repartition<std::uint64_t, DF> d64;
    const hn::Rebind<std::uint8_t, decltype(d64)> d;
    const auto pair = hn::BitCast(d64, hn::And(code, hn::Set(DU(), 0xf)));
    const auto byte = hn::Or(pair, hn::ShiftRight<28>(pair));
    hn::StoreU(hn::TruncateTo(d, byte), d, reinterpret_cast<std::uint8_t*>(codes) + lane / 2);
  }
  HWY_INLINE void finish() {}
};

template <>
struct Unpacker<4> {
  HWY_INLINE explicit Unpacker(const std::byte* codes) {
    const hn::CappedTag<std::uint16_t, kUnit / 2> d16;
    const hn::Rebind<std::uint8_t, decltype(d16)> d8;
    const hn::Repartition<std::uint8_t, decltype(d16)> d;
    const auto low = hn::Set(d16, 0xf), eight = hn::Set(d16, 0x0808);
    for (std::size_t i = 0; i < kUnit / 2; i += hn::Lanes(d16)) {
      const auto pair =
          hn::PromoteTo(d16, hn::LoadU(d8, reinterpret_cast<const std::uint8_t*>(codes) + i));
      const auto parted = hn::Or(hn::And(pair, low), hn::ShiftLeft<8>(hn::ShiftRight<4>(pair)));
      const auto code = hn::Sub(hn::BitCast(d, hn::Xor(parted, eight)), hn::BitCast(d, eight));
      hn::Store(code, d, reinterpret_cast<std::uint8_t*>(bytes) + 2 * i);
    }
  }
  HWY_INLINE VU get(std::size_t lane) const { return Unpacker<8>{bytes}.get(lane); }

  alignas(64) std::byte bytes[kUnit];
};

template <>
struct Packer<2> {
  std::byte* codes;
  HWY_INLINE void put(std::size_t lane, VU code) const {
    const hn::Rebind<std::int8_t, DF> d;
    const hn::Repartition<std::uint32_t, decltype(d)> d32;
    const hn::Rebind<std::uint8_t, decltype(d32)> d8;
    const auto bytes = hn::BitCast(d32, hn::DemoteTo(d, hn::BitCast(DI(), code)));
    const auto four = hn::And(bytes, hn::Set(d32, 0x03030303));
    const auto two = hn::Or(four, hn::ShiftRight<6>(four));
    const auto byte = hn::And(hn::Or(two, hn::ShiftRight<12>(two)), hn::Set(d32, 0xff));
    hn::StoreU(hn::DemoteTo(d8, hn::BitCast(hn::RebindToSigned<decltype(d32)>(), byte)), d8,
               reinterpret_cast<std::uint8_t*>(codes) + lane / 4);
  }
  HWY_INLINE void finish() {}
};

template <>
struct Unpacker<2> {
  HWY_INLINE explicit Unpacker(const std::byte* codes) { std::memcpy(words, codes, sizeof words); }
  HWY_INLINE VU get(std::size_t lane) const {
    const VU all = hn::Set(DU(), static_cast<std::uint32_t>(words[lane / 32] >> 2 * (lane % 32)));
    const VU places = hn::ShiftLeft<1>(hn::Iota(DU(), 0)), two = hn::Set(DU(), 2);
    const VU code = hn::And(hn::Shr(all, places), hn::Set(DU(), 3));
    return hn::Sub(hn::Xor(code, two), two);
  }

  std::uint64_t words[2];
};

template <>
struct Packer<1> {
  std::byte* codes;
  std::uint64_t word = 0;
  HWY_INLINE void put(std::size_t lane, VU code) {
    std::uint8_t bytes[8];
    hn::StoreMaskBits(DI(), hn::Lt(hn::BitCast(DI(), code), hn::Zero(DI())), bytes);
    std::uint64_t bits = 0;
    std::memcpy(&bits, bytes, (hn::Lanes(DF()) + 7) / 8);
    word |= bits << lane;
  }
  HWY_INLINE void finish() { std::memcpy(codes, &word, sizeof word); }
};

template <>
struct Unpacker<1> {
  HWY_INLINE explicit Unpacker(const std::byte* codes) { std::memcpy(&word, codes, sizeof word); }
  HWY_INLINE VU get(std::size_t lane) const {
    alignas(64) static constexpr std::uint32_t kBitOfLane[16] = {
        0x1,   0x2,   0x4,   0x8,   0x10,   0x20,   0x40,   0x80,
        0x100, 0x200, 0x400, 0x800, 0x1000, 0x2000, 0x4000, 0x8000};
    const auto all = hn::Set(DU(), static_cast<std::uint32_t>(word >> lane));
    const auto is_set = hn::TestBit(all, hn::Load(DU(), kBitOfLane));
    return hn::IfThenElseZero(is_set, hn::Set(DU(), 0x80000000u));
  }

  std::uint64_t word;
};

#endif  // HWY_SCALAR

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
