// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/ordered_sum.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "kernels/put_back.hpp"
#include "tests/harness/device.hpp"
#include "tests/harness/graph.hpp"
#include "tests/kernels/cases/add_cases.hpp"

namespace winnow::tests {
namespace {

/// Terms in device memory.
struct ListsOnDevice {
  std::deque<DeviceArray<std::uint32_t>> index;
  std::deque<DeviceArray<float>> value;
  std::deque<DeviceArray<std::uint64_t>> coded;
  std::vector<kernels::Term> terms;

  ListsOnDevice(std::span<const SumList> lists, const Stream& stream) {
    for (const SumList& list : lists) {
      index.emplace_back(list.index.size()).upload(list.index, stream);
      value.emplace_back(list.value.size()).upload(list.value, stream);
      coded.emplace_back(list.coded.size()).upload(list.coded, stream);
      kernels::Term term = list.term();
      term.index = index.back().span();
      if (list.coded.empty()) term.value = value.back().span();
      term.coded = std::as_bytes(coded.back().span());
      terms.push_back(term);
    }
  }
  kernels::SparseView view(std::size_t list) const {
    return {index[list].span(), value[list].span()};
  }
};

Exec on(const Stream& stream) {
  return {.place = Place::cuda, .stream = stream.get()};
}

class SumsOnDevice : public DeviceTest {};

TEST_F(SumsOnDevice, OrderedSumsEqualReference) {
  const Stream stream;
  Workspace workspace, device_workspace(kernels::cuda::kDeviceMemory);
  Exec exec = on(stream);
  exec.workspace = &workspace;
  exec.device_workspace = &device_workspace;
  const SumBody body = [&](std::span<const SumList> lists, std::uint64_t begin,
                           std::span<float> sum, float factor) {
    const ListsOnDevice device(lists, stream);
    DeviceArray<float> result(sum.size());
    const DeviceZeros<std::uint32_t> not_finite(1, stream);
    kernels::ordered_sum(exec, {.terms = {device.terms},
                                .begin = begin,
                                .sum = result.span(),
                                .factor = factor,
                                .not_finite = not_finite.data()});
    std::ranges::copy(result.download(stream), sum.begin());
    return not_finite.download(stream)[0] == 0;
  };
  expect_all_sums_equal_reference(body);
  expect_coded_sums_equal_reference(body);
}

/// Replays of a sum of coded terms write the same sums again.
TEST_F(SumsOnDevice, AGraphSums) {
  const Stream stream;
  std::vector<SumList> lists = make_lists(4, 10'000, Input::cauchy);
  lists.push_back(
      code({{}, make_input(Input::normal, 10'000, 5)}, {&kernels::value_codings()[4], 128}));
  const ListsOnDevice device(lists, stream);
  DeviceArray<float> sum(10'000);
  const DeviceZeros<std::uint32_t> not_finite(1, stream);
  const Graph graph(stream, [&] {
    kernels::ordered_sum(
        on(stream), {.terms = {device.terms}, .sum = sum.span(), .not_finite = not_finite.data()});
  });
  std::vector<kernels::Term> terms;
  for (const SumList& list : lists) terms.push_back({.index = list.index, .value = list.value});
  std::vector<float> expected(10'000);
  kernels::ordered_sum({.place = Place::reference}, {.terms = {terms}, .sum = expected});
  for (int replay = 0; replay < 2; ++replay) {
    graph.launch(stream);
    EXPECT_TRUE(same_bits(sum.download(stream), expected));
  }
}

/// Through the dispatch, twice, from a graph.
TEST_F(SumsOnDevice, AGraphPutsBack) {
  const Stream stream;
  const SumList list = make_list(Support::random, 10'000, 3, Input::normal);
  const ListsOnDevice device({&list, 1}, stream);
  std::vector<float> expected = make_input(Input::normal, 10'000, 4);
  DeviceArray<float> sum(expected.size());
  sum.upload(expected, stream);
  const Graph graph(stream, [&] { kernels::put_back(on(stream), sum.span(), 0, device.view(0)); });
  for (int replay = 0; replay < 2; ++replay) {
    graph.launch(stream);
    kernels::put_back({.place = Place::reference}, expected, 0, list.view());
  }
  EXPECT_TRUE(same_bits(sum.download(stream), expected));
}

}  // namespace
}  // namespace winnow::tests
