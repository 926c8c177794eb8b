// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace winnow::kernels {

/// Divides by a number that is only known at run time, by multiplications: no device divides
/// integers itself.
class Divisor {
 public:
  constexpr explicit Divisor(std::uint32_t number)
      : number_(number), inverse_(number == 0 ? 0 : ~std::uint64_t{0} / number) {}

  constexpr std::uint32_t number() const { return number_; }

  struct Divided {
    std::uint64_t quotient;
    std::uint32_t remainder;
  };
  /// The inverse is less than 2^64 / number by at most 1, so the product of it with a value below
  /// 2^64 is the quotient or one less.
  constexpr Divided of(std::uint64_t value) const {
    __extension__ using Wide = unsigned __int128;
    const auto low = static_cast<std::uint64_t>(Wide{value} * inverse_ >> 64);
    const std::uint64_t left = value - low * number_;
    return left < number_ ? Divided{low, static_cast<std::uint32_t>(left)}
                          : Divided{low + 1, static_cast<std::uint32_t>(left - number_)};
  }

 private:
  std::uint32_t number_;
  std::uint64_t inverse_;
};

/// The quotient, rounded down.
constexpr std::uint64_t operator/(std::uint64_t value, const Divisor& by) {
  return by.of(value).quotient;
}

}  // namespace winnow::kernels
