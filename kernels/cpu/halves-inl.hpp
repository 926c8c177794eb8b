// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Included once for each Highway target.
#if defined(WINNOW_KERNELS_CPU_HALVES) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_HALVES
#undef WINNOW_KERNELS_CPU_HALVES
#else
#define WINNOW_KERNELS_CPU_HALVES
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <winnow/elements.hpp>

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// kernels::widen_fp16, in lanes of 32 bits.
template <class D, class V = hn::Vec<hn::RebindToUnsigned<D>>>
HWY_INLINE hn::Vec<D> widen_fp16_lanes(D d, V half) {
  const hn::RebindToUnsigned<D> d32;
  const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(d32, 0x8000u)));
  const auto size = hn::ShiftLeft<13>(hn::And(half, hn::Set(d32, 0x7fffu)));
  const auto finite = hn::BitCast(d32, hn::Mul(hn::BitCast(d, size), hn::Set(d, 0x1p112f)));
  constexpr std::uint32_t kSpecial = 0x7c00u << 13;  // exponent 31: infinite or NaN
  const auto special = hn::Add(size, hn::Set(d32, 0x7f800000u - kSpecial));
  const auto is_special = hn::Gt(size, hn::Set(d32, kSpecial - 1));
  return hn::BitCast(d, hn::Or(sign, hn::IfThenElse(is_special, special, finite)));
}

/// The elements of a vector, widened.
template <class D>
HWY_INLINE hn::Vec<D> load_bf16(D d, const std::uint16_t* from) {
  const hn::Rebind<std::uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, from))));
}
template <class D>
HWY_INLINE hn::Vec<D> load_fp16(D d, const std::uint16_t* from) {
  const hn::Rebind<std::uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  return widen_fp16_lanes(d, hn::PromoteTo(d32, hn::LoadU(d16, from)));
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
