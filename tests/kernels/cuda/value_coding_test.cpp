// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/value_coding.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <vector>
#include <winnow/error.hpp>

#include "tests/harness/device.hpp"
#include "tests/harness/graph.hpp"
#include "tests/kernels/cases/check_cases.hpp"
#include "tests/kernels/cases/quantize_cases.hpp"

namespace winnow::tests {
namespace {

using kernels::FeedbackPiece;
using kernels::ValueFormat;

/// A case in device memory, one array a piece.
struct OnDevice {
  std::deque<DeviceArray<float>> gradient, residual;
  std::deque<DeviceArray<std::byte>> out;
  std::vector<std::span<std::byte>> messages;
  DeviceArray<float> own;
  DeviceArray<std::uint32_t> not_finite{1};
  DeviceArray<kernels::RandomKey> key{1};
  std::vector<FeedbackPiece> pieces;
  DeviceArray<FeedbackPiece> device_pieces;

  OnDevice(const QuantizeCase& c, QuantizeState& state, const Stream& stream)
      : own(state.own.size()), device_pieces(c.at.size()) {
    for (std::size_t p = 0; p < c.at.size(); ++p) {
      gradient.emplace_back(state.gradient[p].size()).upload(state.gradient[p], stream);
      residual.emplace_back(state.residual[p].size()).upload(state.residual[p], stream);
      pieces.push_back({gradient[p].span().subspan(c.offset), residual[p].span(), c.at[p].first});
    }
    for (const std::span<std::byte> message : state.messages()) {
      messages.push_back(out.emplace_back(message.size()).span());
      out.back().upload(message, stream);
    }
    own.upload(state.own, stream);
    device_pieces.upload(pieces, stream);
  }

  /// The key is `by_value`, or else the one in device memory.
  void step(const QuantizeCase& c, const ValueFormat& format, float decay, const Stream& stream,
            bool by_value = true) {
    kernels::zero(stream.exec(), std::as_writable_bytes(not_finite.span()));
    kernels::feedback_quantize(stream.exec(),
                               {.pieces = {pieces, device_pieces.data()},
                                .decay = decay,
                                .partition = c.partition(),
                                .self = c.self,
                                .format = format,
                                .key = by_value ? kQuantizeKey : kernels::RandomKey{},
                                .out = messages,
                                .own = own.span(),
                                .not_finite = not_finite.data(),
                                .key_there = by_value ? nullptr : key.data()});
  }

  void download(QuantizeState& state, const Stream& stream) const {
    for (std::size_t p = 0; p < pieces.size(); ++p) {
      state.gradient[p] = gradient[p].download(stream);
      state.residual[p] = residual[p].download(stream);
    }
    for (std::size_t owner = 0; owner < out.size(); ++owner) {
      std::ranges::copy(out[owner].download(stream), state.out[owner].span().begin());
    }
    state.own = own.download(stream);
    state.finite = not_finite.download(stream)[0] == 0;
  }
};

void quantize_on_device(const QuantizeCase& c, const ValueFormat& format, float decay,
                        QuantizeState& state) {
  const Stream stream;
  OnDevice device(c, state, stream);
  device.step(c, format, decay, stream);
  device.download(state, stream);
}

class FeedbackQuantizeOnDevice : public DeviceTest {};

TEST_F(FeedbackQuantizeOnDevice, EveryFormatEqualsReferenceAtAwkwardSizes) {
  for (const ValueFormat& format : all_formats()) {
    for (const QuantizeCase& c : awkward_sizes()) {
      expect_equals_reference(c, format, quantize_on_device);
    }
  }
}

TEST_F(FeedbackQuantizeOnDevice, LargeMessagesEqualReference) {
  const std::size_t count = large(kLargeSize);
  for (const ValueFormat& format : all_formats()) {
    expect_equals_reference({.at = {{0, count}}, .count = count}, format, quantize_on_device);
  }
}

TEST_F(FeedbackQuantizeOnDevice, EveryListOfPiecesAndInputEqualsReference) {
  for (const ValueFormat& format : all_formats()) {
    for (QuantizeCase c : piece_lists()) {
      for (const Input input : {Input::normal, Input::cauchy, Input::all_equal, Input::all_zero,
                                Input::denormal, Input::not_finite, Input::mostly_not_finite}) {
        c.input = input;
        expect_equals_reference(c, format, quantize_on_device);
      }
    }
  }
}

TEST_F(FeedbackQuantizeOnDevice, SeveralOwnersEqualReference) {
  for (const ValueFormat& format : default_formats()) {
    for (QuantizeCase c : shared_pieces()) {
      c.input = c.owners == 3 ? Input::not_finite : Input::cauchy;
      expect_equals_reference(c, format, quantize_on_device);
    }
  }
}

TEST_F(FeedbackQuantizeOnDevice, MisalignedGradientsAndLongBlocksEqualReference) {
  for (ValueFormat format : default_formats()) {
    for (std::size_t offset = 1; offset < 4; ++offset) {
      expect_equals_reference({.at = {{0, 3001}}, .count = 3001, .offset = offset}, format,
                              quantize_on_device);
    }
    if (format.block == 0) continue;
    format.block = 65536;
    expect_equals_reference({.at = {{64, 140'000}}, .count = 140'100}, format, quantize_on_device);
  }
}

/// A replay is another step: the same kernels on what the last one left, by another key.
TEST_F(FeedbackQuantizeOnDevice, AGraphReplaysSteps) {
  const Stream stream;
  for (const ValueFormat& format : default_formats()) {
    SCOPED_TRACE(name_of(format));
    const QuantizeCase c = piece_lists()[0];
    QuantizeState state = begin(c, format), expected = begin(c, format);
    OnDevice device(c, state, stream);
    const Graph graph(stream, [&] { device.step(c, format, 1, stream, false); });
    kernels::RandomKey key = kQuantizeKey;
    for (int step = 0; step < 2; ++step) {
      ++key.call;
      device.key.upload({&key, 1}, stream);
      graph.launch(stream);
      quantize_by_reference_with(key, c, format, 1, expected);
    }
    device.download(state, stream);
    EXPECT_TRUE(state.out == expected.out);
    for (std::size_t p = 0; p < c.at.size(); ++p) {
      EXPECT_TRUE(same_bits(state.residual[p], expected.residual[p]));
    }
  }
}

/// Through the dispatch of kernels::quantize.
TEST_F(FeedbackQuantizeOnDevice, QuantizeEqualsReference) {
  const Stream stream;
  for (const ValueFormat& format : all_formats()) {
    SCOPED_TRACE(name_of(format));
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{4097}}) {
      std::vector<float> values = make_values(Values::cauchy, count, 3);
      Coded expected(format, count), got(format, count);
      DeviceArray<float> device_values(count);
      DeviceArray<std::byte> out(got.span().size());
      device_values.upload(values, stream);
      kernels::quantize({.place = Place::cuda, .stream = stream.get()}, format, kQuantizeKey,
                        device_values.span(), out.span());
      kernels::quantize({.place = Place::reference}, format, kQuantizeKey, values, expected.span());
      const std::vector<std::byte> bytes = out.download(stream);
      std::copy(bytes.begin(), bytes.end(), got.span().begin());
      EXPECT_TRUE(got == expected);
      EXPECT_TRUE(same_bits(device_values.download(stream), values));
    }
  }
}

/// Through the dispatch of kernels::dequantize, whole and from the middle on.
TEST_F(FeedbackQuantizeOnDevice, DequantizeEqualsReference) {
  const Stream stream;
  for (const ValueFormat& format : all_formats()) {
    SCOPED_TRACE(name_of(format));
    for (const std::size_t count : {0U, 1U, 33U, 4097U}) {
      std::vector<float> values = make_values(Values::cauchy, count, 3);
      Coded coded(format, count);
      kernels::quantize({.place = Place::reference}, format, kQuantizeKey, values, coded.span());
      DeviceArray<std::byte> in(coded.span().size());
      in.upload(coded.span(), stream);
      for (const std::size_t begin : {std::size_t{0}, count / 3}) {
        std::vector<float> expected(count - begin);
        kernels::dequantize({.place = Place::reference}, format, count, coded.span(), begin,
                            expected);
        DeviceArray<float> out(expected.size());
        kernels::dequantize({.place = Place::cuda, .stream = stream.get()}, format, count,
                            in.span(), begin, out.span());
        EXPECT_TRUE(same_bits(out.download(stream), expected));
      }
    }
  }
}

TEST_F(FeedbackQuantizeOnDevice, ChecksEqualReference) {
  const Stream stream;
  expect_checks_equal_reference(
      [&](const ValueFormat& format, std::uint64_t k, std::span<const std::byte> coded) {
        const DeviceArray<std::byte> in(coded.size());
        const DeviceZeros<std::uint32_t> refused(1, stream);
        in.upload(coded, stream);
        kernels::check_values(stream.exec(), {format, k, in.span(), refused.data()});
        return refused.download(stream)[0] == 0;
      });
}

}  // namespace
}  // namespace winnow::tests
