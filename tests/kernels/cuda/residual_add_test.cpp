// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/residual_add.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>
#include <winnow/error.hpp>

#include "kernels/residual_add.hpp"
#include "lab/reference/place.hpp"
#include "tests/harness/device.hpp"

namespace winnow {
namespace {

using tests::DeviceArray;
using tests::DeviceTest;
using tests::large;
using tests::Stream;
using Bits = std::vector<std::uint32_t>;

/// A float past each end of the span, to see writes outside.
constexpr std::size_t kGuard = 8;
constexpr float kUntouched = -12345.5F;

/// Numbers of all magnitudes, denormals, zeros of both signs and infinities of one sign: the sum
/// has exactly one bit pattern for each of them.
std::vector<float> numbers(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    const auto bits = static_cast<std::uint32_t>(random());
    value = std::bit_cast<float>(bits);
    if (std::isnan(value)) value = std::numeric_limits<float>::infinity();
    if (value == -std::numeric_limits<float>::infinity()) value = -0.0F;
    if (bits % 16 == 0) value = std::bit_cast<float>(bits & 0x807fffffU);  // denormal
  }
  return values;
}

Bits bits_of(const std::vector<float>& values) {
  Bits bits;
  bits.reserve(values.size());
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

struct Case {
  std::size_t count, residual_offset, gradient_offset;
};

class ResidualAddOnDevice : public DeviceTest {
 protected:
  /// Runs the device body and the reference on spans that begin `offset` floats past a 256-byte
  /// boundary; everything around the residual must stay as it is.
  static void expect_equals_reference(const Case& c, const Stream& stream) {
    SCOPED_TRACE(testing::Message() << "count " << c.count << ", residual +" << c.residual_offset
                                    << ", gradient +" << c.gradient_offset);
    const auto seed = static_cast<std::uint32_t>(c.count * 16 + c.residual_offset);
    const std::size_t before = kGuard + c.residual_offset;
    std::vector<float> residual(before + c.count + kGuard, kUntouched);
    const std::vector<float> start = numbers(c.count, seed);
    std::copy(start.begin(), start.end(), residual.begin() + static_cast<std::ptrdiff_t>(before));
    const std::vector<float> gradient = numbers(c.gradient_offset + c.count, seed + 1);

    DeviceArray<float> device_residual(residual.size()), device_gradient(gradient.size());
    device_residual.upload(residual, stream);
    device_gradient.upload(gradient, stream);
    const Exec device{.place = Place::cuda, .stream = stream.get()};
    kernels::residual_add(device, device_residual.span().subspan(before, c.count),
                          device_gradient.span().subspan(c.gradient_offset));
    const std::vector<float> actual = device_residual.download(stream);

    kernels::residual_add(Exec{.place = lab::kReference},
                          std::span(residual).subspan(before, c.count),
                          std::span(gradient).subspan(c.gradient_offset));
    const Bits expected_bits = bits_of(residual), actual_bits = bits_of(actual);
    const auto [expected, found] =
        std::mismatch(expected_bits.begin(), expected_bits.end(), actual_bits.begin());
    EXPECT_TRUE(expected == expected_bits.end())
        << "position " << expected - expected_bits.begin() - static_cast<std::ptrdiff_t>(before)
        << ": " << std::hex << *found << ", reference " << *expected;
  }
};

TEST_F(ResidualAddOnDevice, EqualsReferenceAtAwkwardSizes) {
  const Stream stream;
  // The last is longer than one trip of the largest grid of a device with 132 multiprocessors.
  const std::size_t counts[] = {
      0, 1, 2, 3, 4, 5, 31, 32, 33, 4095, 4097, large((1U << 20) + 7), large((1U << 24) + 5)};
  for (const std::size_t count : counts) {
    expect_equals_reference({count, 0, 0}, stream);
  }
}

TEST_F(ResidualAddOnDevice, EqualsReferenceWhereSpansAreMisaligned) {
  const Stream stream;
  const std::size_t counts[] = {0, 1, 2, 3, 5, 33, 4097, large((1U << 20) + 7)};
  for (const std::size_t count : counts) {
    for (std::size_t residual = 0; residual < 4; ++residual) {
      for (std::size_t gradient = 0; gradient < 4; ++gradient) {
        expect_equals_reference({count, residual, gradient}, stream);
      }
    }
  }
}

TEST_F(ResidualAddOnDevice, PassesNaN) {
  const Stream stream;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  DeviceArray<float> residual(3), gradient(3);
  residual.upload(std::vector{nan, 1.0F, inf}, stream);
  gradient.upload(std::vector{1.0F, nan, -inf}, stream);
  kernels::residual_add({.place = Place::cuda, .stream = stream.get()}, residual.span(),
                        gradient.span());
  for (const float value : residual.download(stream)) EXPECT_TRUE(std::isnan(value)) << value;
}

TEST_F(ResidualAddOnDevice, RunsOnTheStreamOfExec) {
  // A launch that is captured has not run, and a launch on another stream is not captured.
  const Stream stream;
  DeviceArray<float> residual(5), gradient(5);
  residual.upload(std::vector<float>(5, 1), stream);
  gradient.upload(std::vector<float>(5, 2), stream);
  cudaGraph_t graph = nullptr;
  WINNOW_CUDA_TRY(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
  EXPECT_NO_THROW(kernels::residual_add({.place = Place::cuda, .stream = stream.get()},
                                        residual.span(), gradient.span()));
  WINNOW_CUDA_TRY(cudaStreamEndCapture(stream.get(), &graph));
  WINNOW_CUDA_TRY(cudaDeviceSynchronize());
  EXPECT_EQ(residual.download(stream), std::vector<float>(5, 1));

  cudaGraphExec_t executable = nullptr;
  WINNOW_CUDA_TRY(cudaGraphInstantiate(&executable, graph, 0));
  WINNOW_CUDA_TRY(cudaGraphLaunch(executable, stream.get()));
  WINNOW_CUDA_TRY(cudaGraphLaunch(executable, stream.get()));
  EXPECT_EQ(residual.download(stream), std::vector<float>(5, 5));
  WINNOW_CUDA_TRY(cudaGraphExecDestroy(executable));
  WINNOW_CUDA_TRY(cudaGraphDestroy(graph));
}

TEST_F(ResidualAddOnDevice, RefusedLaunchThrows) {
  // No kernel can join a capture that another stream's misuse has broken.
  const Stream stream;
  DeviceArray<float> residual(4), gradient(4);
  cudaGraph_t graph = nullptr;
  WINNOW_CUDA_TRY(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
  EXPECT_EQ(cudaStreamSynchronize(stream.get()), cudaErrorStreamCaptureUnsupported);
  (void)cudaGetLastError();  // clears the misuse's error; the launch must fail for its own reason
  try {
    kernels::residual_add({.place = Place::cuda, .stream = stream.get()}, residual.span(),
                          gradient.span());
    ADD_FAILURE() << "the launch was not refused";
  } catch (const CudaError& error) {
    EXPECT_EQ(error.code(), static_cast<int>(cudaErrorStreamCaptureInvalidated)) << error.what();
  }
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "an error that was thrown is still pending";
  (void)cudaStreamEndCapture(stream.get(), &graph);
  (void)cudaGetLastError();  // the end of the broken capture leaves an error
}

}  // namespace
}  // namespace winnow
