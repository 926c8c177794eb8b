// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/ordered_sum.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "lab/reference/place.hpp"
#include "tests/harness/device.hpp"
#include "tests/harness/graph.hpp"
#include "tests/kernels/cases/add_cases.hpp"
#include "tests/kernels/cases/terms_on_place.hpp"

namespace winnow::tests {
namespace {

Exec on(const Stream& stream) {
  return {.place = Place::cuda, .stream = stream.get()};
}

class SumsOnDevice : public DeviceTest {};

/// Replays of a sum of coded terms write the same sums again.
TEST_F(SumsOnDevice, AGraphSums) {
  const Stream stream;
  std::vector<SumList> lists = make_lists(4, 10'000, Input::cauchy);
  lists.push_back(
      code({{}, make_input(Input::normal, 10'000, 5)}, {&kernels::value_codings()[4], 128}));
  const TermsOnPlace terms(on(stream), lists);
  DeviceArray<float> sum(10'000);
  const DeviceZeros<std::uint32_t> not_finite(1, stream);
  const Graph graph(stream, [&] {
    kernels::ordered_sum(on(stream), {.terms = {terms.span()},
                                      .sums = kernels::alone({sum.span()}),
                                      .not_finite = not_finite.data()});
  });
  std::vector<kernels::Term> decoded;
  for (const SumList& list : lists) decoded.push_back({.index = list.index, .value = list.value});
  std::vector<float> expected(10'000);
  kernels::ordered_sum({.place = lab::kReference},
                       {.terms = {decoded}, .sums = kernels::alone({expected})});
  for (int replay = 0; replay < 2; ++replay) {
    graph.launch(stream);
    EXPECT_TRUE(same_bits(sum.download(stream), expected));
  }
}

}  // namespace
}  // namespace winnow::tests
