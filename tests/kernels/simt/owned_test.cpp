// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/owned.cuh"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/pieces.cuh"
#include "tests/kernels/cases/owned_cases.hpp"
#include "tests/model/machine.hpp"
#include "tests/model/orders.hpp"

namespace winnow::tests {
namespace {

using kernels::PlacedSpan;

template <class Task>
void launch(Machine& machine, const Task& task) {
  if (task.count > 0) machine.launch(2, kernels::cuda::Pieces<Task, 1>::of({&task, 1}));
}

/// A case's job on pieces; `count` stays for it to read.
kernels::OwnedJob job_of(const OwnedCase& c, std::span<const PlacedSpan> pieces,
                         const std::uint64_t& count) {
  return {.partition = c.partition,
          .owner = c.owner,
          .pieces = {pieces, pieces.data()},
          .values = c.values.term(),
          .count = count == c.values.value.size() ? nullptr : &count};
}

Said move_on(Machine& machine, const OwnedCase& c, std::span<const PlacedSpan> pieces) {
  const kernels::OwnedJob job = job_of(c, pieces, c.count);
  const kernels::cuda::OwnedTask task = kernels::cuda::make_owned_task(job);
  const std::uint64_t moved = kernels::cuda::moved(job);
  std::uint32_t not_finite = 0, too_large = 0;
  if (c.op == OwnedOp::add) launch(machine, kernels::cuda::AddOwned{task, moved});
  if (c.op == OwnedOp::store) launch(machine, kernels::cuda::StoreOwned{task, moved});
  if (c.op == OwnedOp::write) {
    launch(machine, kernels::cuda::WriteOwned{task, moved, c.factor, &not_finite, &too_large});
  }
  return {not_finite != 0, too_large != 0};
}

OwnedBody owned_on(Machine& machine) {
  return [&machine](const OwnedCase& c, std::vector<OwnedPiece>& pieces) {
    std::vector<PlacedSpan> spans;
    for (OwnedPiece& piece : pieces) spans.push_back({piece.elements, piece.base});
    return !move_on(machine, c, spans).not_finite;
  };
}

class OwnedOnModel : public testing::TestWithParam<SimtOrder> {
 protected:
  Machine machine_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Orders, OwnedOnModel, testing::ValuesIn(simt_orders()));

TEST_P(OwnedOnModel, EqualsTheDefinition) {
  expect_moves(owned_on(machine_));
}

TEST_P(OwnedOnModel, HalvesAreRounded) {
  expect_halves_written([this](const OwnedCase& c, HalfPieces& pieces,
                               std::vector<OwnedPiece>& kept, const kernels::RestKeeper& keeper) {
    const Said said = move_on(machine_, c, pieces.spans);
    const kernels::OwnedJob job = job_of(c, pieces.spans, c.count);
    std::vector<PlacedSpan> residuals;
    for (OwnedPiece& piece : kept) residuals.push_back({piece.elements, piece.base});
    const std::uint32_t word = said.too_large ? 1 : 0;
    launch(machine_,
           kernels::cuda::KeepOwnedRests{
               kernels::cuda::make_owned_task(job), kernels::cuda::moved(job), c.factor,
               kernels::cuda::device_spans({residuals, residuals.data()}), keeper, &word});
    return said;
  });
}

TEST_P(OwnedOnModel, PiecesAreFilled) {
  for (const std::uint32_t count : {1U, 65U, 9001U}) {
    std::vector<OwnedPiece> pieces = make_pieces(count);
    std::vector<PlacedSpan> spans;
    for (OwnedPiece& piece : pieces) spans.push_back({piece.elements, piece.base});
    machine_.launch(2, kernels::cuda::make_fill({spans, spans.data()}, -0.0F));
    for (const OwnedPiece& piece : pieces) {
      EXPECT_TRUE(same_bits(piece.elements, std::vector<float>(piece.elements.size(), -0.0F)));
    }
    HalfPieces halves(ElementType::fp16, pieces);
    machine_.launch(2, kernels::cuda::make_fill({halves.spans, halves.spans.data()}, 1.0F));
    for (const auto& half : halves.halves) {
      EXPECT_EQ(half, std::vector<std::uint16_t>(half.size(), 0x3c00));
    }
  }
}

TEST_P(OwnedOnModel, WhatIsNotFinite) {
  expect_moves_of_infinities(owned_on(machine_));
}

}  // namespace
}  // namespace winnow::tests
