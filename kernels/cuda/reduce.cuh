// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <winnow/elements.hpp>
#include <winnow/error.hpp>
#include <winnow/reduce_op.hpp>

#include "kernels/arithmetic/reduce.hpp"
#include "kernels/arithmetic/with_type.hpp"
#include "kernels/cuda/simt.hpp"

namespace winnow::kernels::cuda {

/// As many elements as a word of 8 bytes holds.
template <class T>
struct WordOf {
  static constexpr unsigned kElements = sizeof(std::uint64_t) / sizeof(T);
  T element[kElements];

  WINNOW_DEVICE static bool is_at(const T* at) {
    return reinterpret_cast<std::uintptr_t>(at) % sizeof(std::uint64_t) == 0;
  }
  WINNOW_DEVICE static WordOf load(const T* at) {
    return std::bit_cast<WordOf>(
        simt::load_word<std::uint64_t>(reinterpret_cast<const std::byte*>(at)));
  }
  WINNOW_DEVICE void store(T* at) const {
    simt::store_word(reinterpret_cast<std::byte*>(at), std::bit_cast<std::uint64_t>(*this));
  }
};

template <ReduceOp kOp, class T>
WINNOW_DEVICE T reduced(T a, T b) {
  if constexpr (kOp == ReduceOp::sum) {
    return sum_of(a, b);
  } else if constexpr (kOp == ReduceOp::product) {
    return product_of(a, b);
  } else if constexpr (kOp == ReduceOp::minimum) {
    return minimum_of(a, b);
  } else {
    static_assert(kOp == ReduceOp::maximum);
    return maximum_of(a, b);
  }
}

template <ReduceOp kOp, class T>
struct Reduce {
  T* into;
  const T* from;
  std::uint64_t count;

  WINNOW_DEVICE void run() const {
    using Word = WordOf<T>;
    const bool has_words = Word::is_at(into) && Word::is_at(from);
    const std::uint64_t words = has_words ? count / Word::kElements : 0;
    for (std::uint64_t w = simt::grid_thread(); w < words; w += simt::grid_threads()) {
      Word a = Word::load(into + w * Word::kElements);
      const Word b = Word::load(from + w * Word::kElements);
      for (unsigned e = 0; e < Word::kElements; ++e) {
        a.element[e] = reduced<kOp>(a.element[e], b.element[e]);
      }
      a.store(into + w * Word::kElements);
    }
    for (std::uint64_t i = words * Word::kElements + simt::grid_thread(); i < count;
         i += simt::grid_threads()) {
      into[i] = reduced<kOp>(into[i], from[i]);
    }
  }
};

/// Makes each element what `change` makes of it.
template <class T, class Change>
WINNOW_DEVICE void change_elements(T* elements, std::uint64_t count, const Change& change) {
  using Word = WordOf<T>;
  const std::uint64_t words = Word::is_at(elements) ? count / Word::kElements : 0;
  for (std::uint64_t w = simt::grid_thread(); w < words; w += simt::grid_threads()) {
    Word word = Word::load(elements + w * Word::kElements);
    for (T& element : word.element) element = change(element);
    word.store(elements + w * Word::kElements);
  }
  for (std::uint64_t i = words * Word::kElements + simt::grid_thread(); i < count;
       i += simt::grid_threads()) {
    elements[i] = change(elements[i]);
  }
}

template <class T>
struct Average {
  T* sums;
  std::uint64_t count;
  int ranks;

  WINNOW_DEVICE void run() const {
    change_elements(sums, count, [this](T sum) { return average_of(sum, ranks); });
  }
};

/// Elements are floats of type T before, and the integers that stand for them afterwards.
template <class T>
struct ToOrdered {
  BitsOf<T>* elements;
  std::uint64_t count;
  ReduceOp op;

  WINNOW_DEVICE void run() const {
    change_elements(elements, count,
                    [this](BitsOf<T> bits) { return ordered_of(std::bit_cast<T>(bits), op); });
  }
};

template <class T>
struct FromOrdered {
  BitsOf<T>* elements;
  std::uint64_t count;

  WINNOW_DEVICE void run() const {
    change_elements(elements, count, [](BitsOf<T> ordered) {
      return std::bit_cast<BitsOf<T>>(float_of<T>(ordered));
    });
  }
};

/// Calls body(kernel, T()) with the kernel of an operation and the C++ type of its elements.
template <class Body>
void visit_reduce_kernel(ElementType type, ReduceOp op, const Body& body) {
  with_type(type, [&]<class T>(T element) {
    switch (op) {
      case ReduceOp::sum:
        return body(Reduce<ReduceOp::sum, T>{}, element);
      case ReduceOp::minimum:
        return body(Reduce<ReduceOp::minimum, T>{}, element);
      case ReduceOp::maximum:
        return body(Reduce<ReduceOp::maximum, T>{}, element);
      case ReduceOp::product:
        return body(Reduce<ReduceOp::product, T>{}, element);
      case ReduceOp::average:
        return;  // expect_reducible
    }
  });
}

}  // namespace winnow::kernels::cuda
