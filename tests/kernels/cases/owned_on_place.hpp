// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "kernels/owned.hpp"
#include "tests/harness/kernel_place.hpp"
#include "tests/kernels/cases/owned_cases.hpp"

namespace winnow::tests {

/// A case in the memory of a place, as a job there.
struct OwnedOnPlace {
  Exec exec;
  OnPlace<std::uint32_t> index;
  OnPlace<float> value;
  OnPlace<std::uint64_t> coded, count;
  OnPlace<std::uint32_t> not_finite, too_large;
  std::deque<OnPlace<float>> elements;
  std::deque<OnPlace<std::uint16_t>> halves;
  std::vector<kernels::PlacedSpan> spans, residuals;
  kernels::OwnedJob job;

  OwnedOnPlace(const Exec& on, const OwnedCase& c, const std::vector<OwnedPiece>& pieces)
      : OwnedOnPlace(on, c) {
    for (const OwnedPiece& piece : pieces) {
      spans.push_back({elements.emplace_back(on, piece.elements).span(), piece.base});
    }
    job.pieces = kernels::place(on, std::span<const kernels::PlacedSpan>(spans));
  }
  OwnedOnPlace(const Exec& on, const OwnedCase& c, const HalfPieces& pieces) : OwnedOnPlace(on, c) {
    for (std::size_t p = 0; p < pieces.spans.size(); ++p) {
      const auto there = halves.emplace_back(on, pieces.halves[p]).span();
      const auto& [given, base] = pieces.spans[p];
      spans.push_back({{there.data(), there.size(), given.type()}, base});
    }
    job.pieces = kernels::place(on, std::span<const kernels::PlacedSpan>(spans));
  }

  void move(const OwnedCase& c) {
    if (c.op == OwnedOp::add) kernels::add_owned(exec, job);
    if (c.op == OwnedOp::store) kernels::store_owned(exec, job);
    if (c.op == OwnedOp::write)
      kernels::write_owned(exec, job, {c.factor, not_finite.data(), too_large.data()});
  }
  /// Keeps the rests of a write, in `elements`.
  void keep_rests(const OwnedCase& c, const std::vector<OwnedPiece>& kept,
                  const kernels::RestKeeper& keeper) {
    for (const OwnedPiece& piece : kept) {
      residuals.push_back({elements.emplace_back(exec, piece.elements).span(), piece.base});
    }
    const auto placed = kernels::place(exec, std::span<const kernels::PlacedSpan>(residuals));
    kernels::write_owned(exec, job,
                         {.factor = c.factor, .rests = {placed, keeper, too_large.data()}});
  }

 private:
  OwnedOnPlace(const Exec& on, const OwnedCase& c)
      : exec(on),
        index(on, c.values.index),
        value(on, c.values.value),
        coded(on, c.values.coded),
        count(on, std::vector<std::uint64_t>{c.count}),
        not_finite(on, 1),
        too_large(on, 1) {
    kernels::Term term = c.values.term();
    term.index = index.span();
    if (c.values.coded.empty()) term.value = value.span();
    term.coded = std::as_bytes(coded.span());
    job = {.partition = c.partition,
           .owner = c.owner,
           .values = term,
           .count = c.count == c.values.value.size() ? nullptr : count.data()};
  }
};

}  // namespace winnow::tests
