// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Included once for each Highway target.
#if defined(WINNOW_KERNELS_CPU_VALUES_CODER) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_VALUES_CODER
#undef WINNOW_KERNELS_CPU_VALUES_CODER
#else
#define WINNOW_KERNELS_CPU_VALUES_CODER
#endif

#include <hwy/highway.h>

#include "kernels/arithmetic/value.hpp"
#include "kernels/cpu/values/packing-inl.hpp"
#include "kernels/cpu/values/philox-inl.hpp"
#include "kernels/cpu/values/plain_body.hpp"

// The loops over units that all codings share. A coding's lanes are a struct with
//   Scalar                             its struct of kernels/arithmetic/value.hpp
//   Lanes(scale)                       what all values of a block need
//   nearest(x, decoded), stochastic(x, words, decoded)   the codes as Packer takes them
//   decode(code)                       of codes as Unpacker gives them
//   scale(x, n)                        where it has scales

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// u in [0, 1): the word's upper 24 bits.
HWY_INLINE VF unit_interval(VU words) {
  return hn::Mul(hn::ConvertTo(DF(), hn::BitCast(DI(), hn::ShiftRight<8>(words))),
                 hn::Set(DF(), 0x1p-24f));
}

/// Calls body(lane, vector) on x, a vector a time, zeros after the last.
template <class Body>
HWY_INLINE void for_each_vector(const float* x, std::size_t n, const Body& body) {
  constexpr std::size_t kStep = 16;
  std::size_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    for (std::size_t lane = 0; lane < kStep; lane += hn::Lanes(DF())) {
      body(lane, hn::LoadU(DF(), x + i + lane));
    }
  }
  if (i == n) return;
  alignas(64) float rest[kStep] = {};
  std::memcpy(rest, x + i, (n - i) * sizeof(float));
  for (std::size_t lane = 0; lane < kStep; lane += hn::Lanes(DF())) {
    body(lane, hn::Load(DF(), rest + lane));
  }
}

/// values::largest_magnitude, in lanes.
inline float largest_magnitude(const float* x, std::size_t n) {
  VF largest = hn::Zero(DF());
  for_each_vector(x, n, [&](std::size_t, VF v) { largest = hn::Max(largest, hn::Abs(v)); });
  return hn::GetLane(hn::MaxOfLanes(DF(), largest));
}

#if HWY_TARGET == HWY_SCALAR

template <class Lanes>
CodingBody make_body() {
  return plain_body<typename Lanes::Scalar>();
}

#else

template <class Lanes, bool kStochastic>
void code_units(const UnitsToCode& all) {
  constexpr std::uint32_t kBits = Lanes::Scalar::kLine.bits;
  const RandomUnits random(kStochastic ? all.key : RandomKey{});
  all.for_each_block(kBits, [&](float scale, const UnitsToCode& part) HWY_ATTR {
    const Lanes lanes(scale);
    for (std::size_t u = 0; u < part.units; ++u) {
      const float* const x = part.x + u * kUnit;
      float* const error = part.error + u * kUnit;
      alignas(64) std::uint32_t words[kUnit];
      if constexpr (kStochastic) random.draw(part.first + u * kUnit, words);
      Packer<kBits> packer{part.codes + u * (kUnit * kBits / 8)};
      for (std::size_t lane = 0; lane < kUnit; lane += hn::Lanes(DF())) {
        const VF v = hn::LoadU(DF(), x + lane);
        VF decoded;
        if constexpr (kStochastic) {
          packer.put(lane, lanes.stochastic(v, hn::Load(DU(), words + lane), decoded));
        } else {
          packer.put(lane, lanes.nearest(v, decoded));
        }
        hn::StoreU(hn::Sub(v, decoded), DF(), error + lane);
      }
      packer.finish();
    }
  });
}

template <class Lanes>
void decode_units(const std::byte* codes, float scale, std::size_t units, float* out) {
  constexpr std::uint32_t kBits = Lanes::Scalar::kLine.bits;
  const Lanes lanes(scale);
  for (std::size_t u = 0; u < units; ++u) {
    const Unpacker<kBits> unpacker{codes};
    for (std::size_t lane = 0; lane < kUnit; lane += hn::Lanes(DF())) {
      hn::StoreU(lanes.decode(unpacker.get(lane)), DF(), out + lane);
    }
    codes += kUnit * kBits / 8;
    out += kUnit;
  }
}

/// Whether no code is the invalid one: looks at each code of a byte.
template <class Scalar>
bool valid_codes(const std::byte* codes, std::size_t bytes) {
  constexpr std::uint32_t kBits = Scalar::kLine.bits;
  static_assert(kBits != 0 && kBits <= 8, "a wider code does not lie within a byte");
  static_assert(Scalar::kInvalidCode != 0, "0 is the code of +0, and pads the last byte");
  const hn::ScalableTag<std::uint8_t> d;
  const auto* const in = reinterpret_cast<const std::uint8_t*>(codes);
  std::size_t i = 0;
  auto invalid = hn::Zero(d);
  for (; i + hn::Lanes(d) <= bytes; i += hn::Lanes(d)) {
    const auto v = hn::LoadU(d, in + i);
    for (std::uint32_t shift = 0; shift < 8; shift += kBits) {
      const auto code =
          hn::And(v, hn::Set(d, static_cast<std::uint8_t>(Scalar::kInvalidMask << shift)));
      const auto bad = hn::Set(d, static_cast<std::uint8_t>(Scalar::kInvalidCode << shift));
      invalid = hn::Or(invalid, hn::VecFromMask(d, hn::Eq(code, bad)));
    }
  }
  bool valid = hn::AllTrue(d, hn::Eq(invalid, hn::Zero(d)));
  for (; i < bytes; ++i) {
    for (std::uint32_t shift = 0; shift < 8; shift += kBits) {
      valid = valid && (in[i] >> shift & Scalar::kInvalidMask) != Scalar::kInvalidCode;
    }
  }
  return valid;
}

template <class Lanes>
CodingBody make_body() {
  using Scalar = typename Lanes::Scalar;
  CodingBody body{};
  body.nearest = code_units<Lanes, false>;
  if constexpr (Scalar::kLine.stochastic) body.stochastic = code_units<Lanes, true>;
  body.decode = decode_units<Lanes>;
  if constexpr (Scalar::kLine.default_block != 0) body.scale = Lanes::scale;
  if constexpr (Scalar::kInvalidCode != values::kNone) body.valid = valid_codes<Scalar>;
  return body;
}

#endif

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
