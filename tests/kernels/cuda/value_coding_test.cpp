// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/value_coding.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "tests/harness/device.hpp"
#include "tests/harness/graph.hpp"
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
  DeviceArray<std::uint64_t> call{1};
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

  void step(const QuantizeCase& c, const ValueFormat& format, float decay, const Stream& stream) {
    kernels::zero(stream.exec(), std::as_writable_bytes(not_finite.span()));
    kernels::RandomKey key = kQuantizeKey;
    key.device_call = call.data();
    kernels::feedback_quantize(stream.exec(), {.pieces = {pieces, device_pieces.data()},
                                               .decay = decay,
                                               .partition = c.partition(),
                                               .self = c.self,
                                               .format = format,
                                               .key = key,
                                               .out = messages,
                                               .own = own.span(),
                                               .not_finite = not_finite.data()});
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

class FeedbackQuantizeOnDevice : public DeviceTest {};

/// Each replay is another step: the same kernels work on the last step's state, in another call.
TEST_F(FeedbackQuantizeOnDevice, AGraphReplaysSteps) {
  const Stream stream;
  for (const ValueFormat& format : default_formats()) {
    SCOPED_TRACE(name_of(format));
    const QuantizeCase c = piece_lists()[0];
    QuantizeState state = begin(c, format), expected = begin(c, format);
    OnDevice device(c, state, stream);
    const Graph graph(stream, [&] { device.step(c, format, 1, stream); });
    kernels::RandomKey key = kQuantizeKey;
    for (int step = 0; step < 2; ++step) {
      ++key.call;
      device.call.upload({&key.call, 1}, stream);
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

}  // namespace
}  // namespace winnow::tests
