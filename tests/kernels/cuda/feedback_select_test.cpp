// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/feedback_select.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

#include "tests/harness/device.hpp"
#include "tests/harness/graph.hpp"
#include "tests/kernels/cases/select_cases.hpp"

namespace winnow::tests {
namespace {

using kernels::SelectBound;
using kernels::SelectResult;

/// A step in device memory.
struct OnDevice {
  DeviceArray<float> gradient, residual, value, own_value;
  DeviceArray<std::uint32_t> index, own_index;
  DeviceArray<SelectBound> state{1};
  DeviceArray<SelectResult> result{1};
  DeviceArray<float> own_bound{1};
  mutable Workspace scratch{kernels::cuda::kDeviceMemory};
  SelectStep host;

  OnDevice(const SelectStep& step, const SelectBound& bound, const Stream& stream)
      : gradient(step.gradient.size()),
        residual(step.gradient.size()),
        value(step.k),
        own_value(step.own ? step.own->room : 0),
        index(step.k),
        own_index(own_value.span().size()),
        host(step) {
    gradient.upload(step.gradient, stream);
    residual.upload(step.residual, stream);
    own_index.upload(std::vector<std::uint32_t>(own_index.span().size()), stream);
    own_value.upload(std::vector<float>(own_value.span().size()), stream);
    state.upload({&bound, 1}, stream);
    if (step.own) own_bound.upload({&step.own->bound, 1}, stream);
    const kernels::FeedbackSelectJob sizes = job_of(step.gradient.size(), step.k);
    scratch.reserve(kernels::feedback_select_scratch(exec(stream), {&sizes, 1}));
  }

  Exec exec(const Stream& stream) const {
    Exec exec = stream.exec();
    exec.device_workspace = &scratch;
    return exec;
  }

  void step(const Stream& stream, bool bound_in_memory = false) {
    const kernels::FeedbackSelectJob job{
        .spans = {gradient.span(), residual.span(), host.decay,
                  host.own_units(own_index.span(), own_value.span())},
        .index = index.span(),
        .value = value.span(),
        .state = state.span().data(),
        .result = result.span().data(),
        .own_bound = bound_in_memory ? own_bound.data() : nullptr};
    kernels::feedback_select(exec(stream), {&job, 1});
  }

  SelectOutcome download(SelectBound& bound, const Stream& stream) const {
    bound = state.download(stream)[0];
    SelectOutcome out(host);
    out.gradient = gradient.download(stream);
    out.residual = residual.download(stream);
    out.index = index.download(stream);
    out.value = value.download(stream);
    out.own_index = own_index.download(stream);
    out.own_value = own_value.download(stream);
    out.result = result.download(stream)[0];
    return out;
  }
};

class FeedbackSelectOnDevice : public DeviceTest {};

/// A replay finds the bound that the step before learnt.
TEST_F(FeedbackSelectOnDevice, AGraphReplaysSteps) {
  const Stream stream;
  for (const Input input : {Input::normal, Input::all_equal, Input::not_finite}) {
    SCOPED_TRACE(testing::Message() << input);
    SelectStep step = first_step(input, 300'001, 3000);
    OnDevice device(step, {}, stream);
    const Graph graph(stream, [&] { device.step(stream); });
    SelectBound bound;
    for (std::uint32_t s = 0; s < 3; ++s) {
      step.gradient = make_input(input, step.gradient.size(), 50 + s);
      device.gradient.upload(step.gradient, stream);
      graph.launch(stream);
      const SelectOutcome expected = select_by_reference(step);
      expect_equal(device.download(bound, stream), expected);
      EXPECT_EQ(bound.k, step.k);
      step.residual = expected.residual;
    }
  }
}

/// A replay also finds the bound of own units that stands in memory.
TEST_F(FeedbackSelectOnDevice, AGraphReplaysStepsWithOwnUnits) {
  const Stream stream;
  SelectStep step = own_step(Input::normal, 300'001, 3, 6400);
  step.own->bound = 1e9F;  // the graph does not use this one
  OnDevice device(step, {}, stream);
  const Graph graph(stream, [&] { device.step(stream, true); });
  SelectBound bound;
  for (const float own_bound : {0.25F, 2.0F}) {
    SCOPED_TRACE(own_bound);
    step.own->bound = own_bound;
    device.own_bound.upload({&own_bound, 1}, stream);
    graph.launch(stream);
    const SelectOutcome expected = select_by_reference(step);
    SelectOutcome got = device.download(bound, stream);
    EXPECT_EQ(got.result.listed, expected.result.listed);
    if (got.result.listed < got.own_index.size()) {  // the last step's entries follow
      got.own_index.resize(got.result.listed);
      got.own_value.resize(got.result.listed);
    }
    EXPECT_TRUE(std::ranges::equal(got.own_index,
                                   std::span(expected.own_index).first(got.own_index.size())));
    EXPECT_TRUE(
        same_bits(got.own_value, std::span(expected.own_value).first(got.own_value.size())));
    EXPECT_TRUE(got.index == expected.index);
    EXPECT_TRUE(same_bits(got.residual, expected.residual));
    step.residual = expected.residual;
    step.gradient = make_input(Input::normal, step.gradient.size(), 70);
    device.gradient.upload(step.gradient, stream);
  }
}

}  // namespace
}  // namespace winnow::tests
