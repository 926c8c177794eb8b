// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/reduce.hpp"

namespace winnow::kernels::cuda {

void reduce(const Exec& exec, ReduceOp op, const Elements& into, const ConstElements& from) {
  if (into.size() == 0) return;
  visit_reduce_kernel(into.type(), op, [&]<class Kernel, class T>(Kernel, T) {
    launch<Kernel>(exec, blocks_of((into.size() + WordOf<T>::kElements - 1) / WordOf<T>::kElements),
                   {into.as<T>().data(), from.as<T>().data(), into.size()});
  });
}

void average(const Exec& exec, const Elements& sums, int ranks) {
  if (sums.size() == 0) return;
  with_type(sums.type(), [&]<class T>(T) {
    launch<Average<T>>(exec,
                       blocks_of((sums.size() + WordOf<T>::kElements - 1) / WordOf<T>::kElements),
                       {sums.as<T>().data(), sums.size(), ranks});
  });
}

}  // namespace winnow::kernels::cuda
