// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Selection by a bound.
#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "kernels/feedback_select.hpp"
#include "tests/harness/device.hpp"
#include "tests/harness/graph.hpp"
#include "tests/kernels/cases/threshold_cases.hpp"

namespace winnow::tests {
namespace {

using kernels::SelectResult;

constexpr std::size_t kBefore = 3;  // elements already in the list

/// A list in device memory.
struct DeviceList {
  DeviceArray<std::uint32_t> index;
  DeviceArray<float> value;
  DeviceArray<std::uint64_t> kept{1};

  explicit DeviceList(std::size_t room) : index(kBefore + room), value(kBefore + room) {}

  void begin(const Stream& stream) const {
    index.upload(std::vector<std::uint32_t>(index.span().size(), 77), stream);
    value.upload(std::vector<float>(value.span().size(), 77), stream);
    const std::uint64_t before = kBefore;
    kept.upload({&before, 1}, stream);
  }
  /// Downloads the list without its first elements, and checks that these are unchanged.
  void download(std::vector<std::uint32_t>& indices, std::vector<float>& values,
                const Stream& stream) const {
    const std::uint64_t end = kept.download(stream)[0];
    ASSERT_GE(end, kBefore);
    ASSERT_LE(end, index.span().size());
    indices = index.download(stream);
    values = value.download(stream);
    for (std::size_t j = 0; j < kBefore; ++j) {
      EXPECT_EQ(indices[j], 77U);
      EXPECT_EQ(values[j], 77);
    }
    const auto from = static_cast<std::ptrdiff_t>(kBefore), to = static_cast<std::ptrdiff_t>(end);
    indices = {indices.begin() + from, indices.begin() + to};
    values = {values.begin() + from, values.begin() + to};
  }
};

/// Passes over parameters in device memory.
struct OnDevice {
  struct Parameter {
    DeviceArray<float> gradient, residual, own_value;
    DeviceArray<std::uint32_t> own_index;
    DeviceArray<SelectResult> result{1};
  };
  mutable Workspace scratch{kernels::cuda::kDeviceMemory};
  const ThresholdJob& job;
  DeviceList list;
  std::deque<Parameter> parameters;

  OnDevice(const ThresholdJob& of, const Stream& stream) : job(of), list(of.count()) {
    for (std::size_t p = 0; p < of.parameters(); ++p) {
      const std::size_t count = of.gradient[p].size();
      parameters.push_back({DeviceArray<float>(count), DeviceArray<float>(count),
                            DeviceArray<float>(of.own_count(p)),
                            DeviceArray<std::uint32_t>(of.own_count(p)),
                            DeviceArray<SelectResult>(1)});
    }
    const std::size_t longest = of.gradient[0].size();
    scratch.reserve(kernels::feedback_threshold_scratch(exec(stream), longest));
    upload(stream);
  }
  Exec exec(const Stream& stream) const {
    Exec exec = stream.exec();
    exec.device_workspace = &scratch;
    return exec;
  }
  void upload(const Stream& stream) {
    list.begin(stream);
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      parameters[p].gradient.upload(job.gradient[p], stream);
      parameters[p].residual.upload(job.residual[p], stream);
    }
  }
  void run(const Stream& stream) const {
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      const Parameter& at = parameters[p];
      kernels::feedback_threshold(
          exec(stream), {.spans = {at.gradient.span(), at.residual.span(), ThresholdJob::kDecay,
                                   job.own(p, at.own_index.span(), at.own_value.span())},
                         .base = job.base[p],
                         .bound = job.bound,
                         .index = list.index.span(),
                         .value = list.value.span(),
                         .kept = list.kept.data(),
                         .result = at.result.data()});
    }
  }
  ThresholdOutcome download(const Stream& stream) const {
    ThresholdOutcome out(job);
    list.download(out.index, out.value, stream);
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      out.gradient[p] = parameters[p].gradient.download(stream);
      out.residual[p] = parameters[p].residual.download(stream);
      out.own_index[p] = parameters[p].own_index.download(stream);
      out.own_value[p] = parameters[p].own_value.download(stream);
      out.result[p] = parameters[p].result.download(stream)[0];
    }
    out.trim();
    return out;
  }
};

class ThresholdOnDevice : public DeviceTest {};

/// A replay appends at the list's current end.
TEST_F(ThresholdOnDevice, AGraphReplaysPasses) {
  const Stream stream;
  ThresholdJob job(Input::normal, 30'001, 3, 0.75F);
  OnDevice device(job, stream);
  const Graph graph(stream, [&] { device.run(stream); });
  for (std::uint32_t step = 0; step < 3; ++step) {
    for (std::size_t p = 0; p < job.parameters(); ++p) {
      job.gradient[p] = make_input(Input::normal, job.gradient[p].size(), 50 + step);
    }
    device.upload(stream);
    graph.launch(stream);
    const ThresholdOutcome expected = expected_of(job);
    expect_equal(device.download(stream), expected);
    job.residual = expected.residual;
  }
}

}  // namespace
}  // namespace winnow::tests
