// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/reduce.hpp"

#include "kernels/cuda/reduce.hpp"
#include "kernels/exec/dispatch.hpp"

namespace winnow::kernels {

namespace reference {
void reduce(const Exec& exec, ReduceOp op, const Elements& into, const ConstElements& from);
void average(const Exec& exec, const Elements& sums, int ranks);
}  // namespace reference
namespace cpu {
void reduce(const Exec& exec, ReduceOp op, const Elements& into, const ConstElements& from);
void average(const Exec& exec, const Elements& sums, int ranks);
}  // namespace cpu

void expect_reducible(ElementType type, ReduceOp op) {
  WINNOW_EXPECTS(type != ElementType::bf16 && type != ElementType::fp16,
                 "elements of 16 bits are not reduced as they are: widen them to float32");
  WINNOW_EXPECTS(op != ReduceOp::average,
                 "an average is not reduced as one: reduce the sum, then divide it");
}

void reduce(const Exec& exec, ReduceOp op, const Elements& into, const ConstElements& from) {
  expect_reducible(into.type(), op);
  WINNOW_EXPECTS(into.size() == from.size() && into.type() == from.type(),
                 "reduce takes as many elements of one type on both sides");
  dispatch(exec, reference::reduce, cpu::reduce, cuda::reduce, op, into, from);
}

void average(const Exec& exec, const Elements& sums, int ranks) {
  dispatch(exec, reference::average, cpu::average, cuda::average, sums, ranks);
}

}  // namespace winnow::kernels
