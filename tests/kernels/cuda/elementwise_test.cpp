// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/elementwise.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>
#include <winnow/error.hpp>

#include "kernels/checksum.hpp"
#include "kernels/half.hpp"
#include "kernels/reduce.hpp"
#include "tests/harness/device.hpp"
#include "tests/harness/graph.hpp"
#include "tests/harness/on_device.hpp"
#include "tests/kernels/cases/elementwise_cases.hpp"

namespace winnow::tests {
namespace {

class ElementwiseOnDevice : public DeviceTest {
 protected:
  static bool says_no(const DeviceArray<std::uint32_t>& word, const Stream& stream) {
    return word.download(stream)[0] != 0;
  }
};

TEST_F(ElementwiseOnDevice, ScaleAndAllFiniteEqualReference) {
  const Stream stream;
  expect_scale_equals_reference([&](std::span<float> elements, float factor) {
    const OnDevice<float> device(elements, stream);
    kernels::scale(stream.exec(), device.span(), factor);
    device.download(elements);
  });
  expect_all_finite_equals_reference([&](std::span<const float> elements) {
    const OnDevice<float> device(elements, stream);
    const DeviceZeros<std::uint32_t> not_finite(1, stream);
    kernels::all_finite(stream.exec(), device.span(), not_finite.data());
    return !says_no(not_finite, stream);
  });
}

TEST_F(ElementwiseOnDevice, LookAheadEqualsReference) {
  const Stream stream;
  expect_look_ahead_equals_reference([&](std::span<const float> weights,
                                         std::span<const float> residual, float share,
                                         std::span<float> ahead) {
    const OnDevice<float> from(weights, stream), missing(residual, stream), to(ahead, stream);
    const bool in_place = weights.data() == ahead.data();
    kernels::look_ahead(stream.exec(), in_place ? to.span() : from.span(), missing.span(), share,
                        to.span());
    to.download(ahead);
  });
}

TEST_F(ElementwiseOnDevice, MomentsEqualReference) {
  const Stream stream;
  const MomentBody body{
      [&](std::span<float> gradient, std::span<float> moment, const kernels::SecondMomentStep& by) {
        const OnDevice<float> updates(gradient, stream), moments(moment, stream);
        kernels::divide_by_moment(stream.exec(), updates.span(), moments.span(), by);
        updates.download(gradient);
        moments.download(moment);
      },
      [&](std::span<float> gradient, std::span<float> moment, std::span<const float> residual,
          const kernels::MomentumStep& by) {
        const OnDevice<float> updates(gradient, stream), moments(moment, stream);
        const OnDevice<float> missing(residual, stream);
        kernels::correct_momentum(stream.exec(), updates.span(), moments.span(),
                                  residual.empty() ? std::span<float>() : missing.span(), by);
        updates.download(gradient);
        moments.download(moment);
      }};
  expect_divide_by_moment_equals_reference(body);
  expect_correct_momentum_equals_reference(body);
}

TEST_F(ElementwiseOnDevice, HalvesEqualReference) {
  const Stream stream;
  const HalfBody body{
      [&](ElementType type, std::span<const std::uint16_t> in, std::span<float> out) {
        const OnDevice<std::uint16_t> from(in, stream);
        const OnDevice<float> to(out, stream);
        kernels::widen(stream.exec(), type, from.span(), to.span());
        to.download(out);
      },
      [&](ElementType type, std::span<const float> in, std::span<std::uint16_t> out) {
        const OnDevice<float> from(in, stream);
        const OnDevice<std::uint16_t> to(out, stream);
        kernels::narrow(stream.exec(), type, from.span(), to.span());
        to.download(out);
      },
      [&](kernels::RestJob job) {
        const std::span<float> sums = job.sums, residual = job.residual;
        const OnDevice<float> device_sums(sums, stream), device_residual(residual, stream);
        const DeviceZeros<std::uint32_t> too_large(1, stream);
        job.sums = device_sums.span();
        job.residual = device_residual.span();
        job.too_large = too_large.data();
        kernels::keep_rest(stream.exec(), job);
        device_sums.download(sums);
        device_residual.download(residual);
        return says_no(too_large, stream);
      }};
  expect_widen_equals_reference(body);
  expect_narrow_equals_reference(body);
  expect_keep_rest_equals_reference(body);
}

TEST_F(ElementwiseOnDevice, ReductionsEqualReference) {
  const Stream stream;
  expect_reduce_equals_reference(
      {[&](ReduceOp op, const Elements& into, const ConstElements& from) {
         kernels::with_type(into.type(), [&]<class T>(T) {
           const OnDevice<T> to(into.as<T>(), stream), other(from.as<T>(), stream);
           kernels::reduce(stream.exec(), op, to.span(), other.span());
           to.download(into.as<T>());
         });
       },
       [&](const Elements& sums, int ranks) {
         kernels::with_type(sums.type(), [&]<class T>(T) {
           const OnDevice<T> device(sums.as<T>(), stream);
           kernels::average(stream.exec(), device.span(), ranks);
           device.download(sums.as<T>());
         });
       }});
}

TEST_F(ElementwiseOnDevice, FloatsAsIntegersEqualTheArithmetic) {
  const Stream stream;
  const auto on_device = [&](const Elements& floats, const auto& body) {
    kernels::with_type(floats.type(), [&]<class T>(T) {
      const OnDevice<T> device(floats.as<T>(), stream);
      body(device.span());
      device.download(floats.as<T>());
    });
  };
  expect_ordered_equals_arithmetic({[&](const Elements& floats, ReduceOp op) {
                                      on_device(floats, [&](const Elements& device) {
                                        kernels::to_ordered(stream.exec(), device, op);
                                      });
                                    },
                                    [&](const Elements& floats) {
                                      on_device(floats, [&](const Elements& device) {
                                        kernels::from_ordered(stream.exec(), device);
                                      });
                                    }});
  const DeviceArray<std::int32_t> integers(1);
  EXPECT_THROW(kernels::to_ordered(stream.exec(), integers.span(), ReduceOp::minimum), UsageError);
  EXPECT_THROW(kernels::from_ordered(stream.exec(), integers.span()), UsageError);
}

TEST_F(ElementwiseOnDevice, TakeAndPutEqualReference) {
  const Stream stream;
  expect_take_equals_reference(
      {[&](std::span<float> elements, std::uint32_t base, std::span<const std::uint32_t> index,
           std::span<float> value) {
         const OnDevice<float> device(elements, stream), taken(value, stream);
         const OnDevice<std::uint32_t> support(index, stream);
         kernels::take(stream.exec(), device.span(), base, support.span(), taken.span());
         device.download(elements);
         taken.download(value);
       },
       [&](std::span<float> elements, std::uint32_t base, const kernels::SparseView& list) {
         const OnDevice<float> device(elements, stream), value(list.value, stream);
         const OnDevice<std::uint32_t> support(list.index, stream);
         kernels::put(stream.exec(), device.span(), base, {support.span(), value.span()});
         device.download(elements);
       }});
}

TEST_F(ElementwiseOnDevice, ZeroLeavesZeros) {
  const Stream stream;
  const DeviceArray<float> elements(1000);
  elements.upload(std::vector<float>(1000, 3), stream);
  kernels::zero(stream.exec(), std::as_writable_bytes(elements.span().subspan(1, 998)));
  std::vector<float> expected(1000);
  expected.front() = expected.back() = 3;
  EXPECT_TRUE(elements.download(stream) == expected);
}

/// Each replay answers anew, whatever the word said before.
TEST_F(ElementwiseOnDevice, AGraphReplays) {
  const Stream stream;
  constexpr std::size_t kCount = 100'003;
  const DeviceArray<float> elements(kCount), ahead(kCount), taken(kCount / 2 + 1);
  const DeviceArray<std::uint16_t> halves(kCount);
  const DeviceArray<std::uint32_t> index(taken.span().size());
  const DeviceZeros<float> residual(kCount, stream);
  const DeviceZeros<std::uint32_t> not_finite(1, stream), too_large(1, stream);
  const DeviceZeros<std::uint64_t> sum(1, stream);
  std::vector<std::uint32_t> support(index.span().size());
  for (std::uint32_t j = 0; j < support.size(); ++j) support[j] = 2 * j;
  index.upload(support, stream);
  const Exec exec = stream.exec();
  const std::span<const std::byte> summed = std::as_bytes(taken.span().first(kCount / 4 * 2));
  const Graph graph(stream, [&] {
    not_finite.clear(stream);
    too_large.clear(stream);
    sum.clear(stream);
    kernels::all_finite(exec, elements.span(), not_finite.data());
    kernels::scale(exec, elements.span(), 0.5F);
    kernels::look_ahead(exec, elements.span(), elements.span(), 0.5F, ahead.span());
    kernels::reduce(exec, ReduceOp::sum, elements.span(), elements.span());
    kernels::average(exec, elements.span(), 4);
    kernels::keep_rest(exec, {.type = ElementType::fp16,
                              .sums = elements.span(),
                              .residual = residual.span(),
                              .too_large = too_large.data()});
    kernels::narrow(exec, ElementType::fp16, elements.span(), halves.span());
    kernels::widen(exec, ElementType::fp16, halves.span(), elements.span());
    kernels::take(exec, elements.span(), 0, index.span(), taken.span());
    kernels::checksums(exec, {&summed, 1}, sum.data());
  });
  for (const bool large : {true, false}) {
    std::vector<float> host = make_input(Input::normal, kCount, large ? 1 : 2);
    if (large) {
      host[kCount - 2] = 1e6F;
      host[kCount - 1] = std::numeric_limits<float>::infinity();
    }
    elements.upload(host, stream);
    graph.launch(stream);
    EXPECT_EQ(says_no(not_finite, stream), large);
    EXPECT_EQ(says_no(too_large, stream), large);
    std::vector<float> quarter = host;
    for (float& x : quarter) x = x * 0.5F - 0.5F * (x * 0.5F);
    EXPECT_TRUE(same_bits_or_nan(ahead.download(stream), quarter));
    std::vector<std::uint16_t> narrow(kCount);
    for (float& x : host) x = (x * 0.5F + x * 0.5F) * 0.25F;
    EXPECT_EQ(clip(kByReference, ElementType::fp16, host), !large);
    kernels::narrow(kByReference, ElementType::fp16, host, narrow);
    kernels::widen(kByReference, ElementType::fp16, narrow, host);
    std::vector<float> value(support.size());
    kernels::take(kByReference, host, 0, support, value);
    EXPECT_TRUE(same_bits(elements.download(stream), host));
    EXPECT_TRUE(same_bits(taken.download(stream), value));
    EXPECT_EQ(sum.download(stream)[0],
              checksum_of(kByReference, std::as_bytes(std::span(value)).first(summed.size())));
  }
}

}  // namespace
}  // namespace winnow::tests
