// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/select_sums.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "lab/reference/select.hpp"

namespace winnow::kernels::reference {

namespace {

/// All sums, and lists of those that terms name. Returns a result in which every sum is a
/// candidate.
template <class Job>
SelectResult add(const Exec& exec, const Job& job, std::span<float> sums) {
  const OwnedSums& owned = job.owned;
  const OwnUnits& own = owned.own;
  const auto acc = [&](std::uint64_t i) {
    return owned.residual[own.partition->position(own.self, owned.begin + i) - own.base];
  };
  std::vector<bool> named(owned.count, false);
  for (std::size_t rank = 0; rank < job.terms.host.size(); ++rank) {
    if (rank == own.self) {
      for (std::uint64_t i = 0; i < owned.count; ++i) sums[i] += acc(i);
      continue;
    }
    const Term& term = job.terms.host[rank];
    std::vector<float> value(term.value.begin(), term.value.end());
    if (term.is_coded()) {
      value.resize(term.count);
      dequantize(exec, term.format, term.count, term.coded, 0, value);
    }
    for (std::size_t j = 0; j < value.size(); ++j) {
      const std::uint64_t i = term.index[j] - owned.begin;
      if (term.index[j] < owned.begin || i >= owned.count) continue;
      sums[i] += value[j];
      named[i] = true;
    }
  }
  std::uint64_t touched = 0;
  SelectResult result{.finite = true, .candidates = owned.count, .passes = 1};
  for (std::uint64_t i = 0; i < owned.count; ++i) {
    result.finite = result.finite && std::isfinite(sums[i]);
    if (!named[i]) {
      sums[i] = acc(i);
      continue;
    }
    if (touched == job.out.touched.size()) {
      result.overflow = true;
      continue;
    }
    job.out.touched[touched] = static_cast<std::uint32_t>(owned.begin + i);
    job.out.sum[touched++] = sums[i];
  }
  *job.touched_count = touched;
  return result;
}

/// Neither reads nor learns a bound, and needs no list: every sum is a candidate.
void select_one(const Exec& exec, const SelectSumsJob& job) {
  const OwnedSums& owned = job.owned;
  std::vector<float> sums(owned.count, 0.0F);
  *job.result = add(exec, job, sums);
  if (job.result->finite && !job.result->overflow) {
    select(exec, sums, *job.state, job.out.index, job.out.value);
  } else {
    std::iota(job.out.index.begin(), job.out.index.end(), 0U);
    std::ranges::fill(job.out.value, 0.0F);
  }
  for (std::uint32_t& local : job.out.index) local += static_cast<std::uint32_t>(owned.begin);
}

}  // namespace

void select_sums(const Exec& exec, std::span<const SelectSumsJob> jobs) {
  for (const SelectSumsJob& job : jobs) select_one(exec, job);
}

std::size_t select_sums_scratch(const Exec&, std::span<const SelectSumsJob> jobs) {
  std::uint64_t most = 0;
  for (const SelectSumsJob& job : jobs) most = std::max(most, job.owned.count);
  return most * sizeof(std::uint32_t);
}

/// Needs no list.
void keep_sums(const Exec& exec, const KeepSumsJob& job) {
  const OwnedSums& owned = job.owned;
  std::vector<float> sums(owned.count, 0.0F);
  *job.result = add(exec, job, sums);
  std::uint64_t end = *job.kept;
  for (std::uint64_t i = 0; job.result->finite && i < owned.count; ++i) {
    if (!(std::fabs(sums[i]) >= job.accumulated->listed_by)) continue;
    job.out.index[end] = static_cast<std::uint32_t>(owned.begin + i);
    job.out.value[end++] = sums[i];
  }
  job.result->candidates = end - *job.kept;
  *job.kept = end;
}

}  // namespace winnow::kernels::reference
