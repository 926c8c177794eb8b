// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/feedback_select.hpp"
#include "tests/kernels/inputs.hpp"

namespace winnow::tests {

// Passes of feedback_threshold that fill one list.

inline constexpr float kThresholds[] = {std::numeric_limits<float>::denorm_min(), 0.75F, 2,
                                        std::numeric_limits<float>::infinity()};

/// Two parameters, one behind the other. If there are owners, some of the positions belong to rank
/// 1.
struct ThresholdJob {
  ThresholdJob(Input input, std::size_t count, std::uint32_t number_of_owners, float least)
      : owners(number_of_owners),
        base{kBase, kBase + static_cast<std::uint32_t>((count + 63) / 64 * 64)},
        partition(std::max(owners, 1U), std::uint64_t{base[1]} + count / 2),
        bound(least) {
    for (const std::size_t size : {count, count / 2}) {
      gradient.push_back(make_input(input, size, 1));
      residual.push_back(make_input(Input::mostly_zero, size, 2));
    }
  }

  static constexpr std::uint32_t kBase = 6400, kSelf = 1;
  static constexpr float kDecay = 0.5F;

  std::size_t parameters() const { return gradient.size(); }
  std::size_t count() const { return gradient[0].size() + gradient[1].size(); }
  /// The number of elements that may be selected.
  std::size_t competing() const { return count() - own_count(0) - own_count(1); }
  /// The number of own elements of parameter p.
  std::uint64_t own_count(std::size_t p) const {
    if (owners == 0) return 0;
    return partition.local_before(kSelf, base[p] + gradient[p].size()) -
           partition.local_before(kSelf, base[p]);
  }
  kernels::OwnUnits own(std::size_t p, std::span<std::uint32_t> index,
                        std::span<float> value) const {
    if (owners == 0) return {};
    return {.partition = &partition,
            .self = kSelf,
            .base = base[p],
            .bound = bound,
            .index = index,
            .value = value};
  }

  std::vector<std::vector<float>> gradient, residual;
  std::uint32_t owners;  // 0: none
  std::uint32_t base[2];
  kernels::Partition partition;
  float bound;
};

/// The list, and the state of each parameter after the passes.
struct ThresholdOutcome {
  std::vector<std::uint32_t> index;
  std::vector<float> value;
  std::vector<std::vector<float>> gradient, residual, own_value;
  std::vector<std::vector<std::uint32_t>> own_index;
  std::vector<kernels::SelectResult> result;

  explicit ThresholdOutcome(const ThresholdJob& job)
      : gradient(job.gradient), residual(job.residual), result(job.parameters()) {
    for (std::size_t p = 0; p < job.parameters(); ++p) {
      own_index.emplace_back(job.own_count(p));
      own_value.emplace_back(job.own_count(p));
    }
  }
  kernels::FeedbackSpans spans(const ThresholdJob& job, std::size_t p) {
    return {gradient[p], residual[p], ThresholdJob::kDecay, job.own(p, own_index[p], own_value[p])};
  }
  /// Cuts off what stands behind the lists of own elements, which has no meaning.
  void trim() {
    for (std::size_t p = 0; p < result.size(); ++p) {
      own_index[p].resize(std::min<std::size_t>(result[p].listed, own_index[p].size()));
      own_value[p].resize(own_index[p].size());
    }
  }
};

/// The outcome that the declaration demands, from the inputs alone.
inline ThresholdOutcome expected_of(const ThresholdJob& job) {
  ThresholdOutcome out(job);
  for (std::size_t p = 0; p < job.parameters(); ++p) {
    kernels::SelectResult& result = out.result[p];
    result = {.finite = true, .candidates = 0, .passes = 1};
    result.listed_by = job.own(p, {}, {}).bound;
    for (std::size_t i = 0; i < job.gradient[p].size(); ++i) {
      const float carried = ThresholdJob::kDecay * job.residual[p][i];
      const float acc = job.gradient[p][i] + carried;
      out.gradient[p][i] = 0;
      result.finite = result.finite && std::isfinite(acc);
      if (!std::isfinite(acc)) continue;
      out.residual[p][i] = acc;
      if (std::fabs(acc) < job.bound) continue;
      const std::uint64_t position = job.base[p] + i;
      if (job.owners > 0 && job.partition.owner_of_unit(position / kernels::Partition::kUnit) ==
                                ThresholdJob::kSelf) {
        out.own_index[p][result.listed] = static_cast<std::uint32_t>(job.partition.local(position));
        out.own_value[p][result.listed++] = acc;
        continue;
      }
      ++result.candidates;
      out.residual[p][i] = 0;
      out.index.push_back(static_cast<std::uint32_t>(position));
      out.value.push_back(acc);
    }
  }
  out.trim();
  return out;
}

inline void expect_equal(const ThresholdOutcome& got, const ThresholdOutcome& expected) {
  EXPECT_TRUE(got.index == expected.index);
  EXPECT_TRUE(same_bits(got.value, expected.value));
  for (std::size_t p = 0; p < expected.result.size(); ++p) {
    SCOPED_TRACE(testing::Message() << "parameter " << p);
    EXPECT_TRUE(same_bits(got.gradient[p], expected.gradient[p]));
    EXPECT_TRUE(same_bits(got.residual[p], expected.residual[p]));
    EXPECT_TRUE(got.own_index[p] == expected.own_index[p]);
    EXPECT_TRUE(same_bits(got.own_value[p], expected.own_value[p]));
    EXPECT_EQ(got.result[p].finite, expected.result[p].finite);
    EXPECT_EQ(got.result[p].candidates, expected.result[p].candidates);
    EXPECT_EQ(got.result[p].passes, 1U);
    EXPECT_EQ(got.result[p].listed, expected.result[p].listed);
    EXPECT_EQ(got.result[p].listed_by, expected.result[p].listed_by);
  }
}

/// Calls each(job, the expected outcome) with and without owners.
template <class Each>
void for_each_threshold(Input input, std::size_t count, std::span<const float> bounds,
                        const Each& each) {
  for (const std::uint32_t owners : {0U, 3U}) {
    for (const float bound : bounds) {
      SCOPED_TRACE(testing::Message() << input << ", " << count << " elements, " << owners
                                      << " owners, bound " << bound);
      const ThresholdJob job(input, count, owners, bound);
      each(job, expected_of(job));
    }
  }
}

}  // namespace winnow::tests
