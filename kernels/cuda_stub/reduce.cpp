// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/reduce.hpp"

#include <winnow/error.hpp>

namespace winnow::kernels::cuda {

void reduce(const Exec&, ReduceOp, const Elements&, const ConstElements&) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

void average(const Exec&, const Elements&, int) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

void to_ordered(const Exec&, const Elements&, ReduceOp) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

void from_ordered(const Exec&, const Elements&) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

}  // namespace winnow::kernels::cuda
