// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/select_sums.hpp"

#include <cmath>
#include <vector>

#include "kernels/reference/select.hpp"

namespace winnow::kernels::reference {

namespace {

/// All sums, and lists of those that terms name; whether all are finite.
bool add(const OwnedSums& owned, std::span<const SparseView> terms, std::span<float> sums,
         SumLists& out) {
  const OwnUnits& own = owned.own;
  const auto acc = [&](std::uint64_t i) {
    return owned.residual[own.partition->position(own.self, owned.begin + i) - own.base];
  };
  std::vector<bool> named(owned.count, false);
  for (std::size_t rank = 0; rank < terms.size(); ++rank) {
    if (rank == own.self) {
      for (std::uint64_t i = 0; i < owned.count; ++i) sums[i] += acc(i);
      continue;
    }
    for (std::size_t j = 0; j < terms[rank].index.size(); ++j) {
      const std::uint64_t i = terms[rank].index[j] - owned.begin;
      if (terms[rank].index[j] < owned.begin || i >= owned.count) continue;
      sums[i] += terms[rank].value[j];
      named[i] = true;
    }
  }
  std::size_t touched = 0;
  bool finite = true;
  for (std::uint64_t i = 0; i < owned.count; ++i) {
    finite = finite && std::isfinite(sums[i]);
    if (!named[i]) {
      sums[i] = acc(i);
      continue;
    }
    out.touched[touched] = static_cast<std::uint32_t>(owned.begin + i);
    out.sum[touched++] = sums[i];
  }
  out.touched = out.touched.first(touched);
  out.sum = out.sum.first(touched);
  return finite;
}

}  // namespace

/// Neither reads nor learns a bound, and needs no list: every sum is a candidate.
SelectResult select_sums(const Exec& exec, const OwnedSums& owned,
                         std::span<const SparseView> terms, SelectBound& state, SumLists& out) {
  std::vector<float> sums(owned.count, 0.0F);
  const bool finite = add(owned, terms, sums, out);
  if (finite) {
    select(exec, sums, state, out.index, out.value);
    for (std::uint32_t& local : out.index) local += static_cast<std::uint32_t>(owned.begin);
  }
  return {.finite = finite, .candidates = owned.count, .passes = 1};
}

/// Needs no list.
SelectResult keep_sums(const Exec&, const OwnedSums& owned, std::span<const SparseView> terms,
                       SumLists& out) {
  std::vector<float> sums(owned.count, 0.0F);
  const bool finite = add(owned, terms, sums, out);
  std::size_t kept = 0;
  for (std::uint64_t i = 0; i < owned.count; ++i) {
    if (!(std::fabs(sums[i]) >= owned.own.bound)) continue;
    out.index[kept] = static_cast<std::uint32_t>(owned.begin + i);
    out.value[kept++] = sums[i];
  }
  out.index = out.index.first(kept);
  return {.finite = finite, .candidates = kept, .passes = 1};
}

}  // namespace winnow::kernels::reference
