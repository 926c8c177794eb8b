// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "kernels/select_sums.hpp"
#include "lab/reference/place.hpp"
#include "tests/kernels/inputs.hpp"

namespace winnow::tests {

// Cases of select_sums, for all its bodies.

/// A parameter that begins at position `base` of a part. Rank `self` of `owners` sums its share of
/// the part, and each other rank sends one element in `every` of this share.
struct SumsJob {
  SumsJob(Input input, std::size_t count, std::uint32_t owners, std::uint64_t first_position,
          unsigned every)
      : SumsJob(input, count, owners, first_position, every, owners / 2) {}
  SumsJob(Input input, std::size_t count, std::uint32_t owners, std::uint64_t first_position,
          unsigned every, std::uint32_t rank)
      : partition(owners, first_position + count + 200),
        self(rank),
        base(first_position),
        residual(make_input(input, count, 1)),
        index(owners),
        value(owners) {
    std::mt19937 random(every);
    begin = end = 0;
    bool first = true;
    for (std::size_t i = 0; i < count; ++i) {
      if (partition.owner_of_unit((base + i) / 64) != self) continue;
      const std::uint64_t local = partition.local(base + i);
      if (first) begin = local;
      first = false;
      end = local + 1;
    }
    for (std::uint32_t r = 0; r < owners; ++r) {
      if (r == self) continue;
      for (std::uint32_t local = 0; local < partition.local_count(self); ++local) {
        if (random() % every == 0) index[r].push_back(local);
      }
      value[r] = make_input(Input::normal, index[r].size(), r);
    }
  }

  std::uint64_t count() const { return end - begin; }
  std::vector<kernels::Term> terms() const {
    std::vector<kernels::Term> terms;
    for (std::size_t r = 0; r < index.size(); ++r) {
      terms.push_back({.index = index[r], .value = value[r]});
    }
    return terms;
  }
  std::size_t entries() const {
    std::size_t entries = 0;
    for (const auto& list : index) entries += list.size();
    return entries;
  }
  /// The largest number of elements that terms may name.
  std::size_t most() const { return std::min<std::size_t>(entries(), count()); }
  /// The job's owned sums, without a list.
  kernels::OwnedSums owned() const {
    return {.own = {.partition = &partition, .self = self, .base = base},
            .residual = residual,
            .begin = begin,
            .count = count(),
            .most = most()};
  }

  kernels::Partition partition;
  std::uint32_t self;
  std::uint64_t base, begin, end;
  std::vector<float> residual;
  std::vector<std::vector<std::uint32_t>> index;  // by rank
  std::vector<std::vector<float>> value;
};

inline constexpr std::size_t kAllRoom = std::numeric_limits<std::size_t>::max();

/// The list that the pass before makes of a job's own elements: those that reach a bound, while
/// there is room.
struct OwnList {
  OwnList(const SumsJob& job, float bound, std::size_t room) : listed_by(bound) {
    for (std::uint64_t local = job.begin; local < job.end; ++local) {
      const float acc = job.residual[job.partition.position(job.self, local) - job.base];
      if (std::fabs(acc) < bound) continue;
      index.push_back(static_cast<std::uint32_t>(local));
      value.push_back(acc);
    }
    listed = index.size();
    index.resize(std::min<std::size_t>(room, job.count()));
    value.resize(index.size());
  }
  kernels::SelectResult said() const {
    return {.finite = true, .candidates = 0, .passes = 1, .listed = listed, .listed_by = listed_by};
  }
  std::vector<std::uint32_t> index;
  std::vector<float> value;
  float listed_by;
  std::size_t listed;
};

struct SumsOutcome {
  SumsOutcome() = default;
  SumsOutcome(const SumsJob& job, std::size_t k)
      : index(k), touched(job.most()), value(k), sum(job.most()) {}
  std::vector<std::uint32_t> index, touched;
  std::vector<float> value, sum;
  kernels::SelectResult result{};
};

/// Runs select_sums by the reference body, which needs no list.
inline SumsOutcome select_sums_by_reference(const SumsJob& job, std::size_t k) {
  Workspace workspace;
  const Exec exec{.place = lab::kReference, .workspace = &workspace};
  const auto terms = job.terms();
  const kernels::SelectResult accumulated{};
  kernels::SelectBound unused;
  SumsOutcome out(job, k);
  std::uint64_t touched_count = 0;
  const kernels::SelectSumsJob sums{.owned = job.owned(),
                                    .accumulated = &accumulated,
                                    .terms = {terms},
                                    .out = {out.index, out.value, out.touched, out.sum},
                                    .touched_count = &touched_count,
                                    .state = &unused,
                                    .result = &out.result};
  kernels::select_sums(exec, {&sums, 1});
  out.touched.resize(touched_count);
  out.sum.resize(touched_count);
  return out;
}

/// Runs keep_sums by the reference body: it keeps all sums that reach a bound.
inline SumsOutcome keep_sums_by_reference(const SumsJob& job, float bound) {
  Workspace workspace;
  const Exec exec{.place = lab::kReference, .workspace = &workspace};
  const auto terms = job.terms();
  OwnList list(job, bound, job.count());
  const kernels::SelectResult accumulated = list.said();
  kernels::OwnedSums owned = job.owned();
  owned.own.index = list.index;
  owned.own.value = list.value;
  owned.most = job.count();
  SumsOutcome out(job, job.count());
  out.touched.resize(job.count());
  out.sum.resize(job.count());
  std::uint64_t kept = 0, touched_count = 0;
  kernels::keep_sums(exec, {.owned = owned,
                            .accumulated = &accumulated,
                            .terms = {terms},
                            .out = {out.index, out.value, out.touched, out.sum},
                            .kept = &kept,
                            .touched_count = &touched_count,
                            .result = &out.result});
  out.index.resize(kept);
  out.value.resize(kept);
  out.touched.resize(touched_count);
  out.sum.resize(touched_count);
  return out;
}

/// Makes some of the first rank's values the negative of acc, so that sums are 0.
inline void cancel_some(SumsJob& job) {
  for (std::size_t j = 0; j < job.value[0].size(); j += 3) {
    const std::uint64_t at = job.partition.position(job.self, job.index[0][j]) - job.base;
    if (job.index[0][j] < job.begin || at >= job.residual.size()) continue;
    job.value[0][j] = -job.residual[at];
  }
}

inline void expect_equal(const SumsOutcome& got, const SumsOutcome& expected) {
  EXPECT_EQ(got.result.finite, expected.result.finite);
  EXPECT_TRUE(got.index == expected.index);
  EXPECT_TRUE(same_bits(got.value, expected.value));
  EXPECT_TRUE(got.touched == expected.touched);
  EXPECT_TRUE(same_bits(got.sum, expected.sum));
}

}  // namespace winnow::tests
