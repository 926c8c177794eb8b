// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/reduce.hpp"

namespace winnow::kernels::cuda {
namespace {

/// Words of 8 bytes: a thread takes one at a time.
std::uint64_t words_of(const Elements& elements) {
  return (elements.bytes().size() + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t);
}

}  // namespace

void reduce(const Exec& exec, ReduceOp op, const Elements& into, const ConstElements& from) {
  if (into.size() == 0) return;
  visit_reduce_kernel(into.type(), op, [&]<class Kernel, class T>(Kernel, T) {
    launch<Kernel>(exec, blocks_of(words_of(into)),
                   {into.as<T>().data(), from.as<T>().data(), into.size()});
  });
}

void average(const Exec& exec, const Elements& sums, int ranks) {
  if (sums.size() == 0) return;
  with_type(sums.type(), [&]<class T>(T) {
    launch<Average<T>>(exec, blocks_of(words_of(sums)), {sums.as<T>().data(), sums.size(), ranks});
  });
}

void to_ordered(const Exec& exec, const Elements& floats, ReduceOp op) {
  visit_floats(floats, [&]<class T>(T, BitsOf<T>* bits) {
    if (floats.size() == 0) return;
    launch<ToOrdered<T>>(exec, blocks_of(words_of(floats)), {bits, floats.size(), op});
  });
}

void from_ordered(const Exec& exec, const Elements& floats) {
  visit_floats(floats, [&]<class T>(T, BitsOf<T>* bits) {
    if (floats.size() == 0) return;
    launch<FromOrdered<T>>(exec, blocks_of(words_of(floats)), {bits, floats.size()});
  });
}

}  // namespace winnow::kernels::cuda
