// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/perf/perf_data.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/arithmetic/half.hpp"

namespace winnow::bench {
namespace {

bool is_float(ElementType type) {
  return type == ElementType::float32 || type == ElementType::float64 ||
         type == ElementType::bf16 || type == ElementType::fp16;
}

bool is_signed(ElementType type) {
  return type == ElementType::int8 || type == ElementType::int32 || type == ElementType::int64;
}

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

template <class T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

void write(ElementType type, std::byte* at, std::int64_t value) {
  switch (type) {
    case ElementType::float32:
      return put(at, static_cast<float>(value));
    case ElementType::float64:
      return put(at, static_cast<double>(value));
    case ElementType::bf16:
      return put(at, kernels::narrow_bf16(static_cast<float>(value)));
    case ElementType::fp16:
      return put(at, kernels::narrow_fp16(static_cast<float>(value)));
    case ElementType::int8:
    case ElementType::uint8:
      return put(at, static_cast<std::int8_t>(value));
    case ElementType::int32:
    case ElementType::uint32:
      return put(at, static_cast<std::int32_t>(value));
    case ElementType::int64:
    case ElementType::uint64:
      return put(at, value);
  }
}

template <class T>
T get(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

double read_float(ElementType type, const std::byte* at) {
  if (type == ElementType::float32) return static_cast<double>(get<float>(at));
  if (type == ElementType::float64) return get<double>(at);
  const auto half = get<std::uint16_t>(at);
  return static_cast<double>(type == ElementType::bf16 ? kernels::widen_bf16(half)
                                                       : kernels::widen_fp16(half));
}

/// The nearest value of the type.
double rounded(ElementType type, double x) {
  if (type == ElementType::float64) return x;
  const auto single = static_cast<float>(x);
  if (type == ElementType::bf16) {
    return static_cast<double>(kernels::widen_bf16(kernels::narrow_bf16(single)));
  }
  if (type == ElementType::fp16) {
    return static_cast<double>(kernels::widen_fp16(kernels::narrow_fp16(single)));
  }
  return static_cast<double>(single);
}

/// One unit in the last place of x.
double unit(ElementType type, double x) {
  if (x == 0) return 0;
  const int bits = type == ElementType::float64   ? 52
                   : type == ElementType::float32 ? 23
                   : type == ElementType::bf16    ? 7
                                                  : 10;
  return std::ldexp(1.0, std::ilogb(x) - bits);
}

double exact_float(const Problem& problem, const std::vector<Source>& all, std::uint64_t position) {
  auto result = static_cast<double>(all.front()(position));
  for (std::size_t r = 1; r < all.size(); ++r) {
    const auto x = static_cast<double>(all[r](position));
    switch (problem.op) {
      case ReduceOp::sum:
      case ReduceOp::average:
        result += x;
        break;
      case ReduceOp::minimum:
        result = std::min(result, x);
        break;
      case ReduceOp::maximum:
        result = std::max(result, x);
        break;
      case ReduceOp::product:
        result *= x;
        break;
    }
  }
  return problem.op == ReduceOp::average ? result / problem.ranks : result;
}

/// The low bytes of x in the type.
std::uint64_t wrapped(ElementType type, std::uint64_t x) {
  const auto unused = static_cast<int>(64 - 8 * bytes_of(type));
  const std::uint64_t high = x << unused;
  if (!is_signed(type)) return high >> unused;
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(high) >> unused);
}

std::uint64_t exact_integer(const Problem& problem, const std::vector<Source>& all,
                            std::uint64_t position) {
  const auto is_less = [&](std::uint64_t a, std::uint64_t b) {
    return is_signed(problem.type) ? static_cast<std::int64_t>(a) < static_cast<std::int64_t>(b)
                                   : a < b;
  };
  const auto element = [&](const Source& source) {
    return wrapped(problem.type, static_cast<std::uint64_t>(source(position)));
  };
  std::uint64_t result = element(all.front());
  for (std::size_t r = 1; r < all.size(); ++r) {
    const std::uint64_t x = element(all[r]);
    switch (problem.op) {
      case ReduceOp::sum:
      case ReduceOp::average:
        result += x;
        break;
      case ReduceOp::minimum:
        result = is_less(x, result) ? x : result;
        break;
      case ReduceOp::maximum:
        result = is_less(result, x) ? x : result;
        break;
      case ReduceOp::product:
        result *= x;
        break;
    }
  }
  result = wrapped(problem.type, result);
  if (problem.op != ReduceOp::average) return result;
  const auto ranks = static_cast<std::int64_t>(problem.ranks);
  return is_signed(problem.type)
             ? static_cast<std::uint64_t>(static_cast<std::int64_t>(result) / ranks)
             : result / static_cast<std::uint64_t>(ranks);
}

bool is_wrong(const Problem& problem, const std::vector<Source>& all, std::uint64_t position,
              const std::byte* at) {
  if (is_float(problem.type)) {
    const double exact = exact_float(problem, all, position);
    const double tolerance = problem.op == ReduceOp::average ? 2 * unit(problem.type, exact) : 0.0;
    // Written so that a NaN counts as wrong.
    return !(std::abs(read_float(problem.type, at) - rounded(problem.type, exact)) <= tolerance);
  }
  std::uint64_t bits = 0;
  std::memcpy(&bits, at, bytes_of(problem.type));
  return wrapped(problem.type, bits) != exact_integer(problem, all, position);
}

}  // namespace

void fill(const Problem& problem, int rank, const Elements& elements) {
  const Source source(problem, rank);
  const std::size_t bytes = bytes_of(problem.type);
  std::byte* at = elements.bytes().data();
  for (std::uint64_t i = 0; i < elements.size(); ++i, at += bytes) {
    write(problem.type, at, source(i));
  }
}

std::uint64_t count_wrong(const Problem& problem, const ConstElements& result) {
  const std::vector<Source> all = sources(problem);
  const std::size_t bytes = bytes_of(problem.type);
  const std::byte* at = result.bytes().data();
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < result.size(); ++i, at += bytes) {
    wrong += is_wrong(problem, all, i, at) ? 1 : 0;
  }
  return wrong;
}

double relative_error(const Problem& problem, const ConstElements& result,
                      std::span<const double> rest) {
  const std::vector<Source> all = sources(problem);
  const std::size_t bytes = bytes_of(problem.type);
  const double share = problem.op == ReduceOp::average ? 1.0 / problem.ranks : 1.0;
  const std::byte* at = result.bytes().data();
  double off = 0, whole = 0;
  for (std::uint64_t i = 0; i < result.size(); ++i, at += bytes) {
    const double exact = exact_float(problem, all, i);
    const double kept_back = rest.empty() ? 0.0 : rest[i] * share;
    const double difference = read_float(problem.type, at) + kept_back - exact;
    off += difference * difference;
    whole += exact * exact;
  }
  return whole > 0 ? std::sqrt(off / whole) : 0.0;
}

}  // namespace winnow::bench
