// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/owned.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <utility>
#include <vector>

#include "tests/harness/device.hpp"
#include "tests/harness/graph.hpp"
#include "tests/kernels/cases/owned_cases.hpp"

namespace winnow::tests {
namespace {

using kernels::OwnedJob;
using kernels::PlacedSpan;

/// A case in device memory.
struct OnDevice {
  DeviceArray<std::uint32_t> index;
  DeviceArray<float> value;
  DeviceArray<std::uint64_t> coded, count;
  DeviceArray<std::uint32_t> not_finite;
  std::deque<DeviceArray<float>> elements;
  std::vector<PlacedSpan> spans;
  DeviceArray<PlacedSpan> pieces;
  OwnedJob job;

  OnDevice(const OwnedCase& c, const std::vector<OwnedPiece>& of, const Stream& stream)
      : index(c.values.index.size()),
        value(c.values.value.size()),
        coded(c.values.coded.size()),
        count(1),
        not_finite(1),
        pieces(of.size()) {
    index.upload(c.values.index, stream);
    value.upload(c.values.value, stream);
    coded.upload(c.values.coded, stream);
    count.upload(std::vector<std::uint64_t>{c.count}, stream);
    not_finite.upload(std::vector<std::uint32_t>{0}, stream);
    for (const OwnedPiece& piece : of) {
      elements.emplace_back(piece.elements.size()).upload(piece.elements, stream);
      spans.push_back({elements.back().span(), piece.base});
    }
    pieces.upload(spans, stream);
    kernels::Term term = c.values.term();
    term.index = index.span();
    if (c.values.coded.empty()) term.value = value.span();
    term.coded = std::as_bytes(coded.span());
    job = {.partition = c.partition,
           .owner = c.owner,
           .pieces = {spans, pieces.data()},
           .values = term,
           .count = c.count == c.values.value.size() ? nullptr : count.span().data()};
    stream.synchronize();  // for the lists
  }

  void move(const OwnedCase& c, const Stream& stream) const {
    const Exec exec{.place = Place::cuda, .stream = stream.get()};
    if (c.op == OwnedOp::add) kernels::add_owned(exec, job);
    if (c.op == OwnedOp::store) kernels::store_owned(exec, job);
    if (c.op == OwnedOp::write) kernels::write_owned(exec, job, c.factor, not_finite.data());
  }
};

class OwnedOnDevice : public DeviceTest {
 protected:
  static OwnedBody body() {
    return [](const OwnedCase& c, std::vector<OwnedPiece>& pieces) {
      const Stream stream;
      const OnDevice device(c, pieces, stream);
      device.move(c, stream);
      for (std::size_t p = 0; p < pieces.size(); ++p) {
        pieces[p].elements = device.elements[p].download(stream);
      }
      return device.not_finite.download(stream)[0] == 0;
    };
  }
};

TEST_F(OwnedOnDevice, EqualsTheDefinition) {
  expect_moves(body());
}

TEST_F(OwnedOnDevice, WhatIsNotFinite) {
  expect_moves_of_infinities(body());
}

/// A list and all local numbers, whose gaps hold nothing; what was there before does not matter.
TEST_F(OwnedOnDevice, TakesElementsAndLeavesZeros) {
  const Stream stream;
  const Exec exec{.place = Place::cuda, .stream = stream.get()};
  constexpr std::uint32_t kCount = 4097;
  for (const std::uint32_t owners : {1U, 3U}) {
    const kernels::Partition partition(owners, kCount);
    const auto locals = static_cast<std::uint32_t>(partition.local_count(owners - 1));
    for (const Support support : {Support::dense, Support::random}) {
      SumList list = make_list(support, locals, 7, Input::normal);
      if (support == Support::dense) list.index.clear();
      const OwnedCase c{OwnedOp::store, partition, owners - 1, list, list.value.size()};
      std::vector<OwnedPiece> left = make_pieces(kCount);
      const OnDevice device(c, left, stream);
      DeviceArray<float> taken(list.value.size());
      kernels::take_owned(exec, device.job, taken.span());
      std::vector<float> expected(list.value.size());
      for (std::size_t j = 0; j < expected.size(); ++j) {
        const std::uint64_t local = list.index.empty() ? j : list.index[j];
        const std::uint64_t position = partition.position(c.owner, local);
        for (OwnedPiece& piece : left) {
          if (position < piece.base || position - piece.base >= piece.elements.size()) continue;
          expected[j] = std::exchange(piece.elements[position - piece.base], 0.0F);
        }
      }
      EXPECT_TRUE(same_bits(taken.download(stream), expected));
      for (std::size_t p = 0; p < left.size(); ++p) {
        EXPECT_TRUE(same_bits(device.elements[p].download(stream), left[p].elements));
      }
    }
  }
}

/// How many there are is read when the graph runs.
TEST_F(OwnedOnDevice, AGraphReplays) {
  const Stream stream;
  const kernels::Partition partition(3, 10'000);
  const auto locals = static_cast<std::uint32_t>(partition.local_count(1));
  OwnedCase c{OwnedOp::add, partition, 1, make_list(Support::random, locals, 1, Input::normal), 1};
  std::vector<OwnedPiece> expected = make_pieces(10'000);
  const OnDevice device(c, expected, stream);
  const Graph graph(stream, [&] { device.move(c, stream); });
  for (const std::uint64_t count : {std::uint64_t{5}, std::uint64_t{c.values.value.size()}}) {
    c.count = count;
    const std::vector<std::uint64_t> here{count};
    device.count.upload(here, stream);
    graph.launch(stream);
    (void)move_by_definition(c, expected);
    for (std::size_t p = 0; p < expected.size(); ++p) {
      EXPECT_TRUE(same_bits(device.elements[p].download(stream), expected[p].elements));
    }
  }
}

}  // namespace
}  // namespace winnow::tests
