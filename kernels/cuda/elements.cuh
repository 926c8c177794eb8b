// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <winnow/elements.hpp>

#include "kernels/arithmetic/half.hpp"
#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/vectors.cuh"

namespace winnow::kernels::cuda {

struct BFloat16 {
  WINNOW_DEVICE static float widen(std::uint16_t half) { return widen_bf16(half); }
  WINNOW_DEVICE static std::uint16_t narrow(float x) { return narrow_bf16(x); }
};

struct Float16 {
  WINNOW_DEVICE static float widen(std::uint16_t half) { return widen_fp16(half); }
  WINNOW_DEVICE static std::uint16_t narrow(float x) { return narrow_fp16(x); }
};

/// A vector of elements of 16 bits is a word of 64.
template <class Half>
WINNOW_DEVICE void widen_word(std::uint64_t word, float (&to)[4]) {
  for (unsigned e = 0; e < 4; ++e) to[e] = Half::widen(static_cast<std::uint16_t>(word >> 16 * e));
}

template <class Half>
WINNOW_DEVICE std::uint64_t narrow_word(const float (&from)[4]) {
  std::uint64_t word = 0;
  for (unsigned e = 0; e < 4; ++e) word |= std::uint64_t{Half::narrow(from[e])} << 16 * e;
  return word;
}

WINNOW_DEVICE bool is_word(const std::uint16_t* at) {
  return reinterpret_cast<std::uintptr_t>(at) % 8 == 0;
}

/// As load_vector and store_vector, which they are for float32.
template <class Half>
WINNOW_DEVICE void load_halves(const std::uint16_t* from, unsigned here, float (&to)[4]) {
  if (here == 0xf && is_word(from)) {
    widen_word<Half>(simt::load_word<std::uint64_t>(reinterpret_cast<const std::byte*>(from)), to);
    return;
  }
  for (unsigned e = 0; e < 4; ++e) to[e] = (here >> e & 1) != 0 ? Half::widen(from[e]) : 0;
}

template <class Half>
WINNOW_DEVICE void store_halves(std::uint16_t* to, unsigned here, const float (&from)[4]) {
  const std::uint64_t word = narrow_word<Half>(from);
  if (here == 0xf && is_word(to)) {
    simt::store_word(reinterpret_cast<std::byte*>(to), word);
    return;
  }
  for (unsigned e = 0; e < 4; ++e) {
    if ((here >> e & 1) != 0) to[e] = static_cast<std::uint16_t>(word >> 16 * e);
  }
}

/// Elements of a gradient where they lie, of float32 or of 16 bits.
struct DeviceElements {
  void* data;
  ElementType type;

  WINNOW_DEVICE float* floats() const { return static_cast<float*>(data); }
  WINNOW_DEVICE std::uint16_t* halves() const { return static_cast<std::uint16_t*>(data); }
  WINNOW_DEVICE bool are_floats() const { return type == ElementType::float32; }
  /// Whether vectors from a multiple of 4 elements on are moved by one access.
  WINNOW_DEVICE bool are_vectors() const {
    return are_floats() ? is_vector(floats()) : is_word(halves());
  }
  /// The elements from a place on.
  WINNOW_DEVICE DeviceElements from(std::uint64_t place) const {
    return {static_cast<std::byte*>(data) + place * (are_floats() ? 4 : 2), type};
  }

  WINNOW_DEVICE float at(std::uint64_t i) const {
    if (are_floats()) return floats()[i];
    return type == ElementType::bf16 ? widen_bf16(halves()[i]) : widen_fp16(halves()[i]);
  }
  WINNOW_DEVICE void set(std::uint64_t i, float x) const {
    if (are_floats()) {
      floats()[i] = x;
    } else {
      halves()[i] = type == ElementType::bf16 ? narrow_bf16(x) : narrow_fp16(x);
    }
  }

  /// The vector from element `first` on; only elements in `here` exist.
  WINNOW_DEVICE void load(std::uint64_t first, unsigned here, float (&to)[4]) const {
    if (are_floats()) {
      load_vector(floats() + first, here, to);
    } else if (type == ElementType::bf16) {
      load_halves<BFloat16>(halves() + first, here, to);
    } else {
      load_halves<Float16>(halves() + first, here, to);
    }
  }
  WINNOW_DEVICE void store(std::uint64_t first, unsigned here, const float (&from)[4]) const {
    if (are_floats()) {
      store_vector(floats() + first, here, from);
    } else if (type == ElementType::bf16) {
      store_halves<BFloat16>(halves() + first, here, from);
    } else {
      store_halves<Float16>(halves() + first, here, from);
    }
  }
};

WINNOW_DEVICE constexpr DeviceElements device_elements(const Elements& elements) {
  return {elements.data(), elements.type()};
}
/// For a kernel that only reads them.
WINNOW_DEVICE constexpr DeviceElements device_elements(const ConstElements& elements) {
  return {const_cast<void*>(elements.data()), elements.type()};
}

}  // namespace winnow::kernels::cuda
