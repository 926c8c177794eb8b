// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/add_to.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "tests/cuda/add_cases.hpp"
#include "tests/cuda/device.hpp"
#include "tests/cuda/graph.hpp"

namespace winnow::tests {
namespace {

/// Lists in device memory, and their table.
struct ListsOnDevice {
  std::deque<DeviceArray<std::uint32_t>> index;
  std::deque<DeviceArray<float>> value;
  DeviceArray<kernels::SparseView> table;

  ListsOnDevice(std::span<const SumList> lists, const Stream& stream) : table(lists.size()) {
    std::vector<kernels::SparseView> views;
    for (const SumList& list : lists) {
      index.emplace_back(list.index.size()).upload(list.index, stream);
      value.emplace_back(list.value.size()).upload(list.value, stream);
      views.push_back({index.back().span(), value.back().span()});
    }
    table.upload(views, stream);
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
  expect_all_sums_equal_reference([&](std::span<const SumList> lists, std::uint64_t begin,
                                      std::span<float> sum, float factor) {
    const ListsOnDevice device(lists, stream);
    DeviceArray<float> result(sum.size());
    DeviceArray<std::uint32_t> not_finite(1);
    kernels::cuda::ordered_sum(on(stream), {.lists = device.table.span().data(),
                                            .list_count = static_cast<std::uint32_t>(lists.size()),
                                            .begin = begin,
                                            .sum = result.span(),
                                            .factor = factor,
                                            .not_finite = not_finite.span().data()});
    std::ranges::copy(result.download(stream), sum.begin());
    return not_finite.download(stream)[0] == 0;
  });
}

TEST_F(SumsOnDevice, OneListEqualsReference) {
  const Stream stream;
  expect_adds_equal_reference(
      [&](std::span<float> sum, std::uint32_t base, const SumList& list, float factor) {
        const ListsOnDevice device({&list, 1}, stream);
        DeviceArray<float> result(sum.size());
        DeviceArray<std::uint32_t> not_finite(1);
        result.upload(sum, stream);
        kernels::cuda::add_to(on(stream), result.span(), base, device.view(0), factor,
                              not_finite.span().data());
        std::ranges::copy(result.download(stream), sum.begin());
        return not_finite.download(stream)[0] == 0;
      });
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
