// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/harness/reducer.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/memory_ops.hpp"

namespace winnow::tests {

void read_back(const Exec& exec, std::span<std::byte> to, std::span<const std::byte> from) {
  kernels::read(exec, to, from);
}

void Reducer::all_reduce(std::span<const Segment> bucket, std::optional<ReduceOp> op) {
  if (place_.place != Place::cuda) {
    reducer_.all_reduce(bucket, op);
    return;
  }
  std::vector<Segment> there;
  for (const Segment& segment : bucket) there.push_back(copy_in(segment));
  const auto copy_out = [&] {
    for (std::size_t i = 0; i < bucket.size(); ++i) {
      read_back(place_, bucket[i].elements.bytes(), there[i].elements.bytes());
    }
  };
  try {
    reducer_.all_reduce(there, op);
    reducer_.synchronize();
  } catch (...) {
    copy_out();
    throw;
  }
  copy_out();
}

void Reducer::all_reduce(const Elements& elements, std::uint64_t id, std::optional<ReduceOp> op) {
  const Segment segment{.elements = elements, .id = id};
  all_reduce({&segment, 1}, op);
}

void Reducer::all_reduce(const ConstElements& input, const Elements& output, std::uint64_t id,
                         std::optional<ReduceOp> op) {
  const Segment segment{.elements = output, .id = id, .input = input};
  all_reduce({&segment, 1}, op);
}

void Reducer::reduce_scatter(const ConstElements& input, const Elements& output, std::uint64_t id,
                             std::optional<ReduceOp> op) {
  kernels::PlaceArray<std::byte> in(place_, input.bytes().size());
  kernels::PlaceArray<std::byte> out(place_, output.bytes().size());
  kernels::copy(place_, in.span(), input.bytes());
  kernels::copy(place_, out.span(), output.bytes());
  const auto copy_out = [&] { read_back(place_, output.bytes(), out.span()); };
  try {
    reducer_.reduce_scatter({in.span().data(), input.size(), input.type()},
                            {out.span().data(), output.size(), output.type()}, id, op);
    reducer_.synchronize();
  } catch (...) {
    copy_out();
    throw;
  }
  copy_out();
}

std::vector<float> Reducer::residual(std::uint64_t id) const {
  const auto there = reducer_.residual(id);
  std::vector<float> here(there.size());
  read_back(place_, std::as_writable_bytes(std::span(here)), std::as_bytes(there));
  return here;
}

std::vector<float> Reducer::look_ahead(std::uint64_t id, std::span<const float> weights,
                                       float share) const {
  kernels::PlaceArray<float> before(place_, weights.size()), ahead(place_, weights.size());
  kernels::copy(place_, before.span(), weights);
  reducer_.look_ahead(id, before.span(), ahead.span(), share);
  std::vector<float> here(weights.size()), in_place = here, untouched = here;
  read_back(place_, std::as_writable_bytes(std::span(here)), std::as_bytes(ahead.span()));
  read_back(place_, std::as_writable_bytes(std::span(untouched)), std::as_bytes(before.span()));
  EXPECT_TRUE(std::ranges::equal(untouched, weights)) << "look_ahead changed the weights";
  reducer_.look_ahead(id, before.span(), before.span(), share);
  read_back(place_, std::as_writable_bytes(std::span(in_place)), std::as_bytes(before.span()));
  EXPECT_EQ(in_place, here) << "in place";
  return here;
}

Segment Reducer::copy_in(const Segment& segment) {
  const auto bring = [&](kernels::PlaceArray<std::byte>& to, std::span<const std::byte> from) {
    if (to.size() != from.size()) to = kernels::PlaceArray<std::byte>(place_, from.size());
    kernels::copy(place_, to.span(), from);
    return to.span().data();
  };
  Copy& copy = copies_[segment.id];
  Segment there = segment;
  const ElementType type = segment.elements.type();
  there.elements = {bring(copy.elements, segment.elements.bytes()), segment.elements.size(), type};
  if (segment.input.size() > 0) {
    there.input = {bring(copy.input, segment.input.bytes()), segment.input.size(), type};
  }
  return there;
}

}  // namespace winnow::tests
