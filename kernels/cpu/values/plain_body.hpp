// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/arithmetic/value.hpp"
#include "kernels/arithmetic/value_layout.hpp"
#include "kernels/cpu/values/body.hpp"

namespace winnow::kernels::cpu {

// For Highway's target without vectors, whose lanes can neither widen nor narrow.

template <class Scalar, bool kStochastic>
void code_plainly(const UnitsToCode& all) {
  constexpr std::uint32_t kBits = Scalar::kLine.bits;
  all.for_each_block(kBits, [&](float scale, const UnitsToCode& part) {
    const float inverse = Scalar::inverse(scale);
    std::memset(part.codes, 0, part.units * kUnit * kBits / 8);
    Philox::Words words{};
    for (std::size_t i = 0; i < part.units * kUnit; ++i) {
      const float x = part.x[i];
      std::uint32_t code;
      if constexpr (kStochastic) {
        if (i % 4 == 0) {
          words =
              Philox::words(Philox::counter(all.key, (part.first + i) / 4), Philox::key(all.key));
        }
        code = Scalar::stochastic(x, inverse, words[i % 4]);
      } else {
        code = Scalar::nearest(x, inverse);
      }
      put_code(part.codes, kBits, i, code);
      part.error[i] = x - Scalar::decode(code, scale);
    }
  });
}

template <class Scalar>
void decode_plainly(const std::byte* codes, float scale, std::size_t units, float* out) {
  for (std::size_t i = 0; i < units * kUnit; ++i) {
    out[i] = Scalar::decode(get_code(codes, Scalar::kLine.bits, i), scale);
  }
}

template <class Scalar>
float scale_plainly(const float* x, std::size_t n) {
  return Scalar::scale({x, n});
}

template <class Scalar>
bool valid_plainly(const std::byte* codes, std::size_t bytes) {
  bool valid = true;
  for (std::size_t i = 0; i < bytes * 8 / Scalar::kLine.bits; ++i) {
    const std::uint64_t code = get_code(codes, Scalar::kLine.bits, i);
    valid = valid && (code & Scalar::kInvalidMask) != Scalar::kInvalidCode;
  }
  return valid;
}

template <class Scalar>
CodingBody plain_body() {
  CodingBody body{};
  body.nearest = code_plainly<Scalar, false>;
  if constexpr (Scalar::kLine.stochastic) body.stochastic = code_plainly<Scalar, true>;
  body.decode = decode_plainly<Scalar>;
  if constexpr (Scalar::kLine.default_block != 0) body.scale = scale_plainly<Scalar>;
  if constexpr (Scalar::kInvalidCode != values::kNone) body.valid = valid_plainly<Scalar>;
  return body;
}

}  // namespace winnow::kernels::cpu
