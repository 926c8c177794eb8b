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

template <class T>
struct ReduceTask {
  T* into;
  const T* from;
  std::uint64_t count;
};

template <ReduceOp kOp, class T>
struct Reduce {
  using Task = ReduceTask<T>;
  struct Shared {};

  WINNOW_DEVICE static void run(Shared&, const Task& task) {
    using Word = WordOf<T>;
    const bool has_words = Word::is_at(task.into) && Word::is_at(task.from);
    const std::uint64_t words = has_words ? task.count / Word::kElements : 0;
    for (std::uint64_t w = simt::grid_thread(); w < words; w += simt::grid_threads()) {
      Word into = Word::load(task.into + w * Word::kElements);
      const Word from = Word::load(task.from + w * Word::kElements);
      for (unsigned e = 0; e < Word::kElements; ++e) {
        into.element[e] = reduced<kOp>(into.element[e], from.element[e]);
      }
      into.store(task.into + w * Word::kElements);
    }
    for (std::uint64_t i = words * Word::kElements + simt::grid_thread(); i < task.count;
         i += simt::grid_threads()) {
      task.into[i] = reduced<kOp>(task.into[i], task.from[i]);
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
struct AverageTask {
  T* sums;
  std::uint64_t count;
  int ranks;
};

template <class T>
struct Average {
  using Task = AverageTask<T>;
  struct Shared {};

  WINNOW_DEVICE static void run(Shared&, const Task& task) {
    change_elements(task.sums, task.count, [&task](T sum) { return average_of(sum, task.ranks); });
  }
};

/// Elements are floats of type T before, and the integers that stand for them afterwards.
template <class T>
struct ToOrderedTask {
  BitsOf<T>* elements;
  std::uint64_t count;
  ReduceOp op;
};

template <class T>
struct ToOrdered {
  using Task = ToOrderedTask<T>;
  struct Shared {};

  WINNOW_DEVICE static void run(Shared&, const Task& task) {
    change_elements(task.elements, task.count, [&task](BitsOf<T> bits) {
      return ordered_of(std::bit_cast<T>(bits), task.op);
    });
  }
};

template <class T>
struct FromOrderedTask {
  BitsOf<T>* elements;
  std::uint64_t count;
};

template <class T>
struct FromOrdered {
  using Task = FromOrderedTask<T>;
  struct Shared {};

  WINNOW_DEVICE static void run(Shared&, const Task& task) {
    change_elements(task.elements, task.count, [](BitsOf<T> ordered) {
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
