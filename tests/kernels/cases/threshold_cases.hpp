// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "kernels/feedback_select.hpp"
#include "tests/kernels/inputs.hpp"

namespace winnow::tests {

// Passes of feedback_threshold that fill one list, for bodies that run on a device, or on the model
// of one: what they must leave is what the reference leaves of each parameter alone.

inline constexpr float kThresholds[] = {std::numeric_limits<float>::denorm_min(), 0.75F, 2,
                                        std::numeric_limits<float>::infinity()};

/// Two parameters, one behind the other, of whose positions some belong to rank 1 where there are
/// owners.
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
  /// Of parameter p.
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

/// The list, and what is left of each parameter.
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
  /// What stands behind the lists of own elements is nobody's.
  void trim() {
    for (std::size_t p = 0; p < result.size(); ++p) {
      own_index[p].resize(std::min<std::size_t>(result[p].listed, own_index[p].size()));
      own_value[p].resize(own_index[p].size());
    }
  }
};

inline ThresholdOutcome threshold_by_reference(const ThresholdJob& job) {
  ThresholdOutcome out(job);
  Workspace workspace;
  const Exec exec{.place = Place::reference, .workspace = &workspace};
  std::uint64_t kept = 0;
  out.index.resize(job.count());
  out.value.resize(job.count());
  for (std::size_t p = 0; p < job.parameters(); ++p) {
    kernels::feedback_threshold(exec, {.spans = out.spans(job, p),
                                       .base = job.base[p],
                                       .bound = job.bound,
                                       .index = out.index,
                                       .value = out.value,
                                       .kept = &kept,
                                       .result = &out.result[p]});
  }
  out.index.resize(kept);
  out.value.resize(kept);
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

/// Returns what the passes leave. The list begins with a few elements, which it takes out again.
using ThresholdBody = std::function<ThresholdOutcome(const ThresholdJob&)>;

inline void expect_thresholds_equal_reference(Input input, std::size_t count,
                                              const ThresholdBody& body) {
  for (const std::uint32_t owners : {0U, 2U, 7U}) {
    for (const float bound : kThresholds) {
      SCOPED_TRACE(testing::Message() << input << ", " << count << " elements, " << owners
                                      << " owners, bound " << bound);
      const ThresholdJob job(input, count, owners, bound);
      expect_equal(body(job), threshold_by_reference(job));
    }
  }
}

}  // namespace winnow::tests
