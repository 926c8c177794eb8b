// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/reduce.hpp"

#include <bit>
#include <cstddef>
#include <span>

#include "kernels/arithmetic/reduce.hpp"
#include "kernels/arithmetic/with_type.hpp"

namespace winnow::kernels::reference {
namespace {

template <class T, class Op>
void for_each_pair(std::span<T> into, std::span<const T> from, const Op& op) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = op(into[i], from[i]);
}

}  // namespace

void reduce(const Exec&, ReduceOp op, const Elements& into, const ConstElements& from) {
  with_type(into.type(), [&]<class T>(T) {
    const auto a = into.as<T>();
    const auto b = from.as<T>();
    switch (op) {
      case ReduceOp::sum:
        return for_each_pair(a, b, [](T x, T y) { return sum_of(x, y); });
      case ReduceOp::minimum:
        return for_each_pair(a, b, [](T x, T y) { return minimum_of(x, y); });
      case ReduceOp::maximum:
        return for_each_pair(a, b, [](T x, T y) { return maximum_of(x, y); });
      case ReduceOp::product:
        return for_each_pair(a, b, [](T x, T y) { return product_of(x, y); });
      case ReduceOp::average:
        return;  // expect_reducible
    }
  });
}

void average(const Exec&, const Elements& sums, int ranks) {
  with_type(sums.type(), [&]<class T>(T) {
    for (T& element : sums.as<T>()) element = average_of(element, ranks);
  });
}

void to_ordered(const Exec&, const Elements& floats, ReduceOp op) {
  visit_floats(floats, [&]<class T, class Bits>(T, Bits* bits) {
    for (std::size_t i = 0; i < floats.size(); ++i) {
      bits[i] = ordered_of(std::bit_cast<T>(bits[i]), op);
    }
  });
}

void from_ordered(const Exec&, const Elements& floats) {
  visit_floats(floats, [&]<class T, class Bits>(T, Bits* bits) {
    for (std::size_t i = 0; i < floats.size(); ++i) {
      bits[i] = std::bit_cast<Bits>(float_of<T>(bits[i]));
    }
  });
}

}  // namespace winnow::kernels::reference
