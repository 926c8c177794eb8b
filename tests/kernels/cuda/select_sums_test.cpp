// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/select_sums.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <vector>

#include "tests/harness/device.hpp"
#include "tests/harness/graph.hpp"
#include "tests/kernels/cases/sums_cases.hpp"

namespace winnow::tests {
namespace {

using kernels::SelectBound;
using kernels::SelectResult;

/// A job in device memory.
struct OnDevice {
  const SumsJob& job;
  std::size_t room;
  std::deque<DeviceArray<std::uint32_t>> term_index;
  std::deque<DeviceArray<float>> term_value;
  std::vector<kernels::Term> terms;
  DeviceArray<float> residual, own_value, value, sum;
  DeviceArray<std::uint32_t> own_index, index, touched;
  DeviceArray<std::uint64_t> touched_count{1};
  DeviceArray<SelectBound> state{1};
  DeviceArray<SelectResult> accumulated{1}, result{1};
  mutable Workspace workspace, device_workspace{kernels::cuda::kDeviceMemory};

  OnDevice(const SumsJob& of, std::size_t k, std::size_t list_room, const Stream& stream)
      : job(of),
        room(std::min<std::size_t>(list_room, of.count())),
        residual(of.residual.size()),
        own_value(room),
        value(k),
        sum(of.most()),
        own_index(room),
        index(k),
        touched(of.most()) {
    for (std::size_t r = 0; r < of.index.size(); ++r) {
      term_index.emplace_back(of.index[r].size()).upload(of.index[r], stream);
      term_value.emplace_back(of.value[r].size()).upload(of.value[r], stream);
      terms.push_back({.index = term_index[r].span(), .value = term_value[r].span()});
    }
    residual.upload(of.residual, stream);
  }

  kernels::OwnedSums owned() const {
    kernels::OwnedSums all = job.owned();
    all.residual = residual.span();
    all.own.index = own_index.span();
    all.own.value = own_value.span();
    return all;
  }

  /// Uploads the list that feedback_select would make.
  void list(const SelectBound& bound, std::size_t k, const Stream& stream) const {
    const float own_bound = bound.k == k ? bound.bound : 0;
    const OwnList own(job, own_bound, room);
    own_index.upload(own.index, stream);
    own_value.upload(own.value, stream);
    const SelectResult said = own.said();
    accumulated.upload({&said, 1}, stream);
    state.upload({&bound, 1}, stream);
  }

  kernels::SelectSumsJob job_with(const kernels::PlacedTerms& placed) const {
    return {.owned = owned(),
            .accumulated = accumulated.data(),
            .terms = placed,
            .out = {index.span(), value.span(), touched.span(), sum.span()},
            .touched_count = touched_count.data(),
            .state = state.data(),
            .result = result.data()};
  }
  Exec exec(const Stream& stream) const {
    Exec exec = stream.exec();
    exec.workspace = &workspace;
    exec.device_workspace = &device_workspace;
    return exec;
  }

  void step(const Stream& stream) const {
    const kernels::SelectSumsJob sums = job_with({terms});
    kernels::select_sums(exec(stream), {&sums, 1});
  }

  SumsOutcome download(SelectBound& bound, const Stream& stream) const {
    SumsOutcome out(job, index.span().size());
    out.index = index.download(stream);
    out.value = value.download(stream);
    out.touched = touched.download(stream);
    out.sum = sum.download(stream);
    out.touched.resize(touched_count.download(stream)[0]);
    out.sum.resize(out.touched.size());
    out.result = result.download(stream)[0];
    bound = state.download(stream)[0];
    return out;
  }
};

class SelectSumsOnDevice : public DeviceTest {};

/// A replay finds the list, the residual and the bound of its step.
TEST_F(SelectSumsOnDevice, AGraphReplaysSteps) {
  const Stream stream;
  SumsJob job(Input::normal, 300'001, 3, 0, 50);
  constexpr std::size_t kSelected = 1000;
  const OnDevice device(job, kSelected, 5000, stream);
  SelectBound bound;
  device.list(bound, kSelected, stream);
  device.step(stream);  // takes its scratch
  const Graph graph(stream, [&] { device.step(stream); });
  for (std::uint32_t step = 0; step < 3; ++step) {
    job.residual = make_input(Input::normal, job.residual.size(), 90 + step);
    device.residual.upload(job.residual, stream);
    device.list(bound, kSelected, stream);
    graph.launch(stream);
    const SumsOutcome got = device.download(bound, stream);
    expect_equal(got, select_sums_by_reference(job, kSelected));
    EXPECT_EQ(got.result.passes, step == 0 ? 2U : 1U);
    EXPECT_EQ(bound.k, kSelected);
    graph.launch(stream);  // the list is the same, but the carried bound is another one now
    expect_equal(device.download(bound, stream), got);
  }
}

/// All jobs of a list share its kernels, and what makes their scratch zero. One more kernel stores
/// where several jobs are.
TEST_F(SelectSumsOnDevice, JobsShareTheirKernels) {
  const Stream stream;
  const SumsJob job(Input::normal, 200, 2, 0, 5);
  constexpr std::size_t kSelected = 3;
  for (const std::size_t count : {1U, 60U}) {
    std::deque<OnDevice> devices;
    std::vector<kernels::SelectSumsJob> jobs;
    for (std::size_t i = 0; i < count; ++i) {
      const OnDevice& device = devices.emplace_back(job, kSelected, kAllRoom, stream);
      device.list({}, kSelected, stream);
      const auto placed = kernels::place_terms(device.exec(stream), device.terms);
      jobs.push_back(device.job_with(placed));
    }
    Workspace workspace, device_workspace{kernels::cuda::kDeviceMemory};
    Exec exec = stream.exec();
    exec.workspace = &workspace;
    exec.device_workspace = &device_workspace;
    device_workspace.reserve(kernels::select_sums_scratch(exec, jobs));
    const Graph graph(stream, [&] { kernels::select_sums(exec, jobs); });
    EXPECT_EQ(graph.count(cudaGraphNodeTypeKernel), count == 1 ? 5U : 6U);
    EXPECT_EQ(graph.count(cudaGraphNodeTypeMemset), 1U);
    graph.launch(stream);
    for (const OnDevice& device : devices) {
      SelectBound bound;
      expect_equal(device.download(bound, stream), select_sums_by_reference(job, kSelected));
    }
  }
}

}  // namespace
}  // namespace winnow::tests
