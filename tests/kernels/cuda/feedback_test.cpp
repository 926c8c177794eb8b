// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/feedback.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "lab/reference/place.hpp"
#include "tests/harness/device.hpp"
#include "tests/harness/graph.hpp"
#include "tests/harness/on_device.hpp"
#include "tests/kernels/cases/feedback_cases.hpp"

namespace winnow::tests {
namespace {

class FeedbackOnDevice : public DeviceTest {};

TEST_F(FeedbackOnDevice, EqualsReference) {
  const Stream stream;
  for (const FeedbackKind kind : {FeedbackKind::add, FeedbackKind::keep}) {
    const FeedbackBody on_device = feedback_at(stream.exec(), kind);
    const FeedbackBody body = [&](std::span<float> into, std::span<const float> from, float decay) {
      const Surrounded device(into, stream);
      const OnDevice<float> other(from, stream);
      on_device(device.span(), other.span(), decay);
      device.download();
    };
    expect_feedback_equals_reference(kind, body);
    expect_feedback_equals_reference({kLargeSize, 0, 0, Input::normal, Input::not_finite, 0.9F},
                                     kind, body);
  }
}

TEST_F(FeedbackOnDevice, AGraphReplays) {
  const Stream stream;
  constexpr std::size_t kCount = 100'003;
  const DeviceArray<float> gradient(kCount), residual(kCount);
  const Exec exec = stream.exec();
  const Graph graph(stream, [&] {
    kernels::feedback_keep(exec, residual.span(), gradient.span(), 0.9F, {});
    kernels::feedback_add(exec, gradient.span(), residual.span(), 0.9F);
  });
  std::vector<float> left(kCount, 1);
  residual.upload(left, stream);
  for (const std::uint32_t seed : {1U, 2U}) {
    std::vector<float> host = make_input(Input::normal, kCount, seed);
    gradient.upload(host, stream);
    graph.launch(stream);
    kernels::feedback_keep({.place = lab::kReference}, left, host, 0.9F, {});
    kernels::feedback_add({.place = lab::kReference}, host, left, 0.9F);
    EXPECT_TRUE(same_bits(residual.download(stream), left));
    EXPECT_TRUE(same_bits(gradient.download(stream), host));
  }
}

}  // namespace
}  // namespace winnow::tests
