// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/reduce.hpp"

#include <bit>
#include <cstddef>
#include <span>

#include "kernels/arithmetic/reduce.hpp"
#include "kernels/arithmetic/with_type.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/residual_add.hpp"

namespace winnow::kernels::cpu {
namespace {

/// element = op(element, its partner), for all of `into`. The compiler makes lanes of the loop.
template <class T, class Op>
void combine(const Exec& exec, std::span<T> into, std::span<const T> from, const Op& op) {
  for_each_range(exec.threads, into.size(), [=](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) into[i] = op(into[i], from[i]);
  });
}

/// element = op(element).
template <class T, class Op>
void replace_each(const Exec& exec, std::span<T> elements, const Op& op) {
  for_each_range(exec.threads, elements.size(), [=](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) elements[i] = op(elements[i]);
  });
}

}  // namespace

void reduce(const Exec& exec, ReduceOp op, const Elements& into, const ConstElements& from) {
  // The ring's daily work has lanes of its own.
  if (op == ReduceOp::sum && into.type() == ElementType::float32) {
    residual_add(exec, into.floats(), from.as<float>());
    return;
  }
  with_type(into.type(), [&]<class T>(T) {
    const auto a = into.as<T>();
    const auto b = from.as<T>();
    switch (op) {
      case ReduceOp::sum:
        return combine(exec, a, b, [](T x, T y) { return sum_of(x, y); });
      case ReduceOp::minimum:
        return combine(exec, a, b, [](T x, T y) { return minimum_of(x, y); });
      case ReduceOp::maximum:
        return combine(exec, a, b, [](T x, T y) { return maximum_of(x, y); });
      case ReduceOp::product:
        return combine(exec, a, b, [](T x, T y) { return product_of(x, y); });
      case ReduceOp::average:
        return;  // expect_reducible
    }
  });
}

void average(const Exec& exec, const Elements& sums, int ranks) {
  with_type(sums.type(), [&]<class T>(T) {
    replace_each(exec, sums.as<T>(), [ranks](T element) { return average_of(element, ranks); });
  });
}

void to_ordered(const Exec& exec, const Elements& floats, ReduceOp op) {
  visit_floats(floats, [&]<class T, class Bits>(T, Bits* bits) {
    replace_each(exec, std::span(bits, floats.size()),
                 [op](Bits element) { return ordered_of(std::bit_cast<T>(element), op); });
  });
}

void from_ordered(const Exec& exec, const Elements& floats) {
  visit_floats(floats, [&]<class T, class Bits>(T, Bits* bits) {
    replace_each(exec, std::span(bits, floats.size()),
                 [](Bits element) { return std::bit_cast<Bits>(float_of<T>(element)); });
  });
}

}  // namespace winnow::kernels::cpu
