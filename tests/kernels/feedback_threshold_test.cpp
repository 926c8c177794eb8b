// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <span>
#include <sstream>
#include <string>
#include <vector>
#include <winnow/error.hpp>

#include "kernels/feedback_select.hpp"
#include "tests/harness/kernel_place.hpp"
#include "tests/kernels/cases/threshold_cases.hpp"

namespace winnow::tests {
namespace {

using kernels::FeedbackThresholdJob;
using kernels::GradientAfter;
using kernels::SelectResult;

constexpr std::size_t kBefore = 3;  // elements already in the list

/// Returns the list without its first elements, and checks that these are unchanged.
template <class T>
std::vector<T> without_first(const std::vector<T>& list, std::size_t kept) {
  EXPECT_GE(kept, kBefore);
  EXPECT_LE(kept, list.size());
  for (std::size_t j = 0; j < kBefore; ++j) EXPECT_EQ(list[j], T{77});
  return {list.begin() + static_cast<std::ptrdiff_t>(kBefore),
          list.begin() + static_cast<std::ptrdiff_t>(kept)};
}

/// Passes over the parameters. They fill a list that has room for exactly the competing elements.
ThresholdOutcome run(const Exec& exec, const ThresholdJob& job,
                     GradientAfter gradient_after = GradientAfter::zero) {
  struct Parameter {
    OnPlace<float> gradient, residual, own_value;
    OnPlace<std::uint32_t> own_index;
    OnPlace<SelectResult> result;
  };
  const std::size_t room = kBefore + job.competing();
  OnPlace<std::uint32_t> index(exec, std::vector<std::uint32_t>(room, 77));
  OnPlace<float> value(exec, std::vector<float>(room, 77));
  OnPlace<std::uint64_t> kept(exec, std::vector<std::uint64_t>{kBefore});
  std::deque<Parameter> parameters;
  for (std::size_t p = 0; p < job.parameters(); ++p) {
    Parameter& at = parameters.emplace_back(Parameter{{exec, job.gradient[p]},
                                                      {exec, job.residual[p]},
                                                      {exec, job.own_count(p)},
                                                      {exec, job.own_count(p)},
                                                      {exec, 1}});
    kernels::feedback_threshold(
        exec, {.spans = {at.gradient.span(), at.residual.span(), ThresholdJob::kDecay,
                         job.own(p, at.own_index.span(), at.own_value.span())},
               .base = job.base[p],
               .bound = job.bound,
               .index = index.span(),
               .value = value.span(),
               .kept = kept.data(),
               .result = at.result.data(),
               .gradient_after = gradient_after});
  }
  ThresholdOutcome out(job);
  const std::uint64_t end = kept.download()[0];
  out.index = without_first(index.download(), end);
  out.value = without_first(value.download(), end);
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    out.gradient[p] = parameters[p].gradient.download();
    out.residual[p] = parameters[p].residual.download();
    out.own_index[p] = parameters[p].own_index.download();
    out.own_value[p] = parameters[p].own_value.download();
    out.result[p] = parameters[p].result.download()[0];
  }
  out.trim();
  return out;
}

class FeedbackThreshold : public testing::TestWithParam<Input> {};
INSTANTIATE_TEST_SUITE_P(Inputs, FeedbackThreshold, testing::ValuesIn(kInputs),
                         [](const auto& test) {
                           std::ostringstream name;
                           name << test.param;
                           return name.str();
                         });

void expect_selected(Input input, std::size_t count, std::span<const float> bounds) {
  for_each_threshold(
      input, count, bounds, [](const ThresholdJob& job, const ThresholdOutcome& expected) {
        for_each_body([&](const Exec& exec) { expect_equal(run(exec, job), expected); });
      });
}

TEST_P(FeedbackThreshold, SelectsWhatReachesTheBound) {
  expect_selected(GetParam(), 0, kThresholds);
  for (const std::size_t count : kSizes) {
    if (many(count) == count) expect_selected(GetParam(), count, kThresholds);
  }
}

TEST_P(FeedbackThreshold, SelectsFromMany) {
  const float bounds[] = {0.75F};
  expect_selected(GetParam(), many(200'001), bounds);
}

/// Unless the job asks for zeros, the gradient becomes zeros or stays as it is, except for marks.
TEST(FeedbackThresholdJob, AnUnspecifiedGradientIsOnlyMarked) {
  const ThresholdJob job(Input::not_finite, 9000, 2, 0.75F);
  for_each_body([&](const Exec& exec) {
    ThresholdOutcome got = run(exec, job, GradientAfter::accumulated);
    for (std::size_t p = 0; p < job.parameters(); ++p) {
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < job.gradient[p].size(); ++i) {
        const float carried = ThresholdJob::kDecay * job.residual[p][i];
        const float left = got.gradient[p][i];
        const bool finite = std::isfinite(job.gradient[p][i] + carried);
        wrong += left != 0 && !(finite ? left == job.gradient[p][i] : std::isnan(left));
        got.gradient[p][i] = 0;
      }
      EXPECT_EQ(wrong, 0u);
    }
    expect_equal(got, expected_of(job));
  });
}

TEST(FeedbackThresholdScratch, IsAllThatAPassTakes) {
  const ThresholdJob job(Input::normal, many(300'001), 3, 0.5F);
  const std::size_t count = job.gradient[0].size();
  for_each_body([&](const Exec& exec) {
    Workspace workspace(kernels::memory_of(exec.place));
    workspace.reserve(kernels::feedback_threshold_scratch(exec, count, job.own_count(0)));
    const std::uint64_t allocations = workspace.allocations();
    Exec scratch = exec;
    (exec.place == Place::cuda ? scratch.device_workspace : scratch.workspace) = &workspace;
    run(scratch, job);
    EXPECT_EQ(workspace.allocations(), allocations);
  });
}

TEST(FeedbackThresholdUsage, RefusesWhatItCannotDo) {
  for_each_body([](const Exec& exec) {
    std::vector<float> memory(128), value(128);
    std::vector<std::uint32_t> index(128);
    OnPlace<std::uint64_t> kept(exec, 1), one(exec, std::vector<std::uint64_t>{1});
    SelectResult result{};
    const FeedbackThresholdJob sound{.spans = {memory, memory},
                                     .bound = 1,
                                     .index = index,
                                     .value = value,
                                     .kept = kept.data(),
                                     .result = &result};
    const auto refuses = [&](const std::string& why, const auto& change) {
      FeedbackThresholdJob wrong = sound;
      change(wrong);
      EXPECT_THAT([&] { kernels::feedback_threshold(exec, wrong); },
                  testing::ThrowsMessage<UsageError>(testing::HasSubstr(why)));
    };
    refuses("above 0", [](auto& job) { job.bound = 0; });
    refuses("as many elements",
            [](auto& job) { job.spans.residual = job.spans.residual.first(7); });
    refuses("as many places each", [](auto& job) { job.index = job.index.first(127); });
    const auto few = [](auto& job) {
      job.index = job.index.first(127);
      job.value = job.value.first(127);
    };
    refuses("one for each element that is not own", few);
    refuses("needs kept", [](auto& job) { job.kept = nullptr; });
    refuses("needs kept", [](auto& job) { job.result = nullptr; });
    if (exec.place == Place::cuda) return;  // the host does not read `kept` there
    refuses("one for each element that is not own", [&](auto& job) { job.kept = one.data(); });
  });
}

}  // namespace
}  // namespace winnow::tests
