// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <winnow/elements.hpp>
#include <winnow/error.hpp>

#include "kernels/arithmetic/half.hpp"
#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/vectors.cuh"

namespace winnow::kernels::cuda {

struct BFloat16 {
  static constexpr std::uint32_t kOverflow = std::bit_cast<std::uint32_t>(kBf16Overflow);
  WINNOW_DEVICE static float widen(std::uint16_t half) { return widen_bf16(half); }
  WINNOW_DEVICE static std::uint16_t narrow(float x) { return narrow_bf16(x); }
};

struct Float16 {
  static constexpr std::uint32_t kOverflow = std::bit_cast<std::uint32_t>(kFp16Overflow);
  WINNOW_DEVICE static float widen(std::uint16_t half) { return widen_fp16(half); }
  WINNOW_DEVICE static std::uint16_t narrow(float x) { return narrow_fp16(x); }
};

template <class Half>
struct Widen {
  const std::uint16_t* in;
  float* out;
  std::uint64_t count;

  WINNOW_DEVICE void run(std::uint64_t first, unsigned here) const {
    const std::uint16_t* const from = in + first;
    float four[4] = {};
    if (here == 0xf && reinterpret_cast<std::uintptr_t>(from) % 8 == 0) {
      const auto word = simt::load_word<std::uint64_t>(reinterpret_cast<const std::byte*>(from));
      for (unsigned e = 0; e < 4; ++e) {
        four[e] = Half::widen(static_cast<std::uint16_t>(word >> 16 * e));
      }
    } else {
      for (unsigned e = 0; e < 4; ++e) {
        if ((here >> e & 1) != 0) four[e] = Half::widen(from[e]);
      }
    }
    store_vector(out + first, here, four);
  }
};

template <class Half>
struct Narrow {
  const float* in;
  std::uint16_t* out;
  std::uint64_t count;

  WINNOW_DEVICE void run(std::uint64_t first, unsigned here) const {
    std::uint16_t* const to = out + first;
    float four[4];
    load_vector(in + first, here, four);
    std::uint64_t word = 0;
    for (unsigned e = 0; e < 4; ++e) word |= std::uint64_t{Half::narrow(four[e])} << 16 * e;
    if (here == 0xf && reinterpret_cast<std::uintptr_t>(to) % 8 == 0) {
      simt::store_word(reinterpret_cast<std::byte*>(to), word);
      return;
    }
    for (unsigned e = 0; e < 4; ++e) {
      if ((here >> e & 1) != 0) to[e] = static_cast<std::uint16_t>(word >> 16 * e);
    }
  }
};

template <class Half>
struct Fits {
  const float* in;
  std::uint64_t count;
  float factor;
  std::uint32_t* too_large;

  WINNOW_DEVICE void run(std::uint64_t first, unsigned here) const {
    bool fits = true;
    float four[4];
    load_vector(in + first, here, four);
    for (unsigned e = 0; e < 4; ++e) {
      const bool is_there = (here >> e & 1) != 0;
      fits = fits && (!is_there || magnitude(four[e] * factor) < Half::kOverflow);
    }
    if (!fits && simt::published(too_large) == 0) simt::atomic_or(too_large, 1);
  }
};

/// Calls body(half) with the struct of a type of 16 bits; UsageError for another type.
template <class Body>
void visit_half(ElementType type, const Body& body) {
  WINNOW_EXPECTS(type == ElementType::bf16 || type == ElementType::fp16,
                 "elements of 16 bits are bf16 or fp16");
  if (type == ElementType::bf16) {
    body(BFloat16{});
  } else {
    body(Float16{});
  }
}

}  // namespace winnow::kernels::cuda
