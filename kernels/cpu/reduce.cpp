// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/reduce.hpp"

#include <cstddef>

#include "kernels/cpu/parallel.hpp"
#include "kernels/dispatch/bodies.hpp"
#include "kernels/residual_add.hpp"

namespace winnow::kernels::cpu {

// Float32 sums are the ring's daily work and have lanes of their own; for all else the compiler
// makes lanes of the plain loops.
void reduce(const Exec& exec, ReduceOp op, const Elements& into, const ConstElements& from) {
  if (op == ReduceOp::sum && into.type() == ElementType::float32) {
    residual_add(exec, into.floats(), from.as<float>());
    return;
  }
  for_each_range(exec.threads, into.size(), [&](std::size_t begin, std::size_t end) {
    kReference.reduce(exec, op, into.subspan(begin, end - begin), from.subspan(begin, end - begin));
  });
}

void average(const Exec& exec, const Elements& sums, int ranks) {
  for_each_range(exec.threads, sums.size(), [&](std::size_t begin, std::size_t end) {
    kReference.average(exec, sums.subspan(begin, end - begin), ranks);
  });
}

void to_ordered(const Exec& exec, const Elements& floats, ReduceOp op) {
  for_each_range(exec.threads, floats.size(), [&](std::size_t begin, std::size_t end) {
    kReference.to_ordered(exec, floats.subspan(begin, end - begin), op);
  });
}

void from_ordered(const Exec& exec, const Elements& floats) {
  for_each_range(exec.threads, floats.size(), [&](std::size_t begin, std::size_t end) {
    kReference.from_ordered(exec, floats.subspan(begin, end - begin));
  });
}

}  // namespace winnow::kernels::cpu
