// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/perf/perf_data.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "kernels/arithmetic/half.hpp"

namespace winnow::bench {
namespace {

/// Bits of each of the four numbers that make up an element: as many as the type represents, and
/// few enough that a sum over ranks stays exact in float32 and finite in fp16.
int field_bits(const Problem& problem) {
  const auto of_ranks = static_cast<int>(std::bit_width(static_cast<unsigned>(problem.ranks - 1)));
  switch (problem.type) {
    case ElementType::int8:
    case ElementType::uint8:
    case ElementType::bf16:
      return 6;
    case ElementType::fp16:
      return std::max(1, std::min(8, 14 - of_ranks));
    case ElementType::float32:
      return std::max(1, std::min(14, 23 - of_ranks));
    default:
      return 14;
  }
}

/// Steele, Lea and Flood (2014), SplitMix64.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/// One rank's elements, as whole numbers.
class Source {
 public:
  Source(const Problem& problem, int rank)
      : product_(problem.op == ReduceOp::product),
        ranks_(static_cast<std::uint64_t>(problem.ranks)),
        rank_(static_cast<std::uint64_t>(rank)),
        bits_(field_bits(problem)),
        key_(mixed(problem.seed * 0x10001u + rank_)) {}

  std::int64_t operator()(std::uint64_t position) const {
    std::uint64_t hash = mixed(key_ ^ position);
    if (product_) {
      const bool is_one = (position + rank_) % ranks_ != 0;
      const std::int64_t size = is_one ? 1 : 1 + static_cast<std::int64_t>(hash >> 1 & 0xffff) % 3;
      return (hash & 1) == 0 ? size : -size;
    }
    const std::uint64_t mask = (std::uint64_t{1} << bits_) - 1;
    std::int64_t sum = -2 * static_cast<std::int64_t>(mask);
    for (int field = 0; field < 4; ++field, hash >>= 16) {
      sum += static_cast<std::int64_t>(hash & mask);
    }
    return sum;
  }

 private:
  bool product_;
  std::uint64_t ranks_, rank_;
  int bits_;
  std::uint64_t key_;
};

std::vector<Source> sources(const Problem& problem) {
  std::vector<Source> all;
  for (int rank = 0; rank < problem.ranks; ++rank) all.emplace_back(problem, rank);
  return all;
}

/// An integer, float or double in memory. Numbers are what exact results are computed in.
template <class T>
struct Plain {
  using Stored = T;
  using Number = std::conditional_t<std::is_integral_v<T>, T, double>;
  static constexpr int kFractionBits = std::numeric_limits<T>::digits - 1;
  static T stored(Number x) { return static_cast<T>(x); }
  static Number number(T stored) { return static_cast<Number>(stored); }
};

template <std::uint16_t (*kNarrow)(float), float (*kWiden)(std::uint16_t), int kBits>
struct Half {
  using Stored = std::uint16_t;
  using Number = double;
  static constexpr int kFractionBits = kBits;
  static Stored stored(double x) { return kNarrow(static_cast<float>(x)); }
  static double number(Stored stored) { return static_cast<double>(kWiden(stored)); }
};

/// Calls `body` with the format of a type.
template <class Body>
auto with_format(ElementType type, const Body& body) {
  switch (type) {
    case ElementType::float64:
      return body(Plain<double>());
    case ElementType::bf16:
      return body(Half<kernels::narrow_bf16, kernels::widen_bf16, 7>());
    case ElementType::fp16:
      return body(Half<kernels::narrow_fp16, kernels::widen_fp16, 10>());
    case ElementType::int8:
      return body(Plain<std::int8_t>());
    case ElementType::uint8:
      return body(Plain<std::uint8_t>());
    case ElementType::int32:
      return body(Plain<std::int32_t>());
    case ElementType::uint32:
      return body(Plain<std::uint32_t>());
    case ElementType::int64:
      return body(Plain<std::int64_t>());
    case ElementType::uint64:
      return body(Plain<std::uint64_t>());
    case ElementType::float32:
      break;
  }
  return body(Plain<float>());
}

template <class Format>
typename Format::Number read(const ConstElements& from, std::uint64_t position) {
  typename Format::Stored stored;
  std::memcpy(&stored, from.bytes().data() + position * sizeof stored, sizeof stored);
  return Format::number(stored);
}

template <class Number>
Number combined(ReduceOp op, Number a, Number b) {
  switch (op) {
    case ReduceOp::minimum:
      return std::min(a, b);
    case ReduceOp::maximum:
      return std::max(a, b);
    case ReduceOp::product:
      return static_cast<Number>(a * b);
    case ReduceOp::sum:
    case ReduceOp::average:
      break;
  }
  return static_cast<Number>(a + b);
}

/// Integers wrap around as those of the type do.
template <class Number>
Number exact(const Problem& problem, const std::vector<Source>& all, std::uint64_t position) {
  auto result = static_cast<Number>(all.front()(position));
  for (std::size_t r = 1; r < all.size(); ++r) {
    result = combined(problem.op, result, static_cast<Number>(all[r](position)));
  }
  if (problem.op != ReduceOp::average) return result;
  // There may be more ranks than an int8 can count.
  using Wide = std::conditional_t<std::is_unsigned_v<Number>, std::uint64_t, std::int64_t>;
  using Quotient = std::conditional_t<std::is_integral_v<Number>, Wide, double>;
  return static_cast<Number>(static_cast<Quotient>(result) / static_cast<Quotient>(problem.ranks));
}

template <class Format>
bool is_wrong(const Problem& problem, typename Format::Number result,
              typename Format::Number exact) {
  if constexpr (std::is_integral_v<typename Format::Number>) {
    return result != exact;
  } else {
    const bool is_inexact = problem.op == ReduceOp::average && exact != 0;
    const double tolerance =
        is_inexact ? std::ldexp(2.0, std::ilogb(exact) - Format::kFractionBits) : 0.0;
    // Written so that a NaN counts as wrong.
    return !(std::abs(result - Format::number(Format::stored(exact))) <= tolerance);
  }
}

}  // namespace

void fill(const Problem& problem, int rank, const Elements& elements) {
  const Source source(problem, rank);
  with_format(problem.type, [&]<class Format>(Format) {
    std::byte* at = elements.bytes().data();
    for (std::uint64_t i = 0; i < elements.size(); ++i) {
      const auto stored = Format::stored(static_cast<typename Format::Number>(source(i)));
      std::memcpy(at + i * sizeof stored, &stored, sizeof stored);
    }
  });
}

std::uint64_t count_wrong(const Problem& problem, const Found& result) {
  const std::vector<Source> all = sources(problem);
  return with_format(problem.type, [&]<class Format>(Format) {
    std::uint64_t wrong = 0;
    for (std::uint64_t i = 0; i < result.elements.size(); ++i) {
      const auto right = exact<typename Format::Number>(problem, all, result.first + i);
      wrong += is_wrong<Format>(problem, read<Format>(result.elements, i), right) ? 1 : 0;
    }
    return wrong;
  });
}

double relative_error(const Problem& problem, const Found& result, std::span<const double> rest) {
  const std::vector<Source> all = sources(problem);
  const double share = problem.op == ReduceOp::average ? 1.0 / problem.ranks : 1.0;
  return with_format(problem.type, [&]<class Format>(Format) {
    double off = 0, whole = 0;
    for (std::uint64_t i = 0; i < result.elements.size(); ++i) {
      const auto right = exact<double>(problem, all, result.first + i);
      const double kept_back = rest.empty() ? 0.0 : rest[i] * share;
      const auto found = static_cast<double>(read<Format>(result.elements, i));
      const double difference = found + kept_back - right;
      off += difference * difference;
      whole += right * right;
    }
    return whole > 0 ? std::sqrt(off / whole) : 0.0;
  });
}

}  // namespace winnow::bench
