// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/reduce.hpp"

#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

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
  dispatch(exec, &Bodies::reduce, op, into, from);
}

void average(const Exec& exec, const Elements& sums, int ranks) {
  dispatch(exec, &Bodies::average, sums, ranks);
}

void to_ordered(const Exec& exec, const Elements& floats, ReduceOp op) {
  dispatch(exec, &Bodies::to_ordered, floats, op);
}

void from_ordered(const Exec& exec, const Elements& floats) {
  dispatch(exec, &Bodies::from_ordered, floats);
}

}  // namespace winnow::kernels
