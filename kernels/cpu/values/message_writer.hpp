// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <span>

#include "kernels/arithmetic/value_layout.hpp"
#include "kernels/cpu/values/body.hpp"

namespace winnow::kernels::cpu {

/// Writes the coded values of one message. Threads may write different chunks at the same time.
class MessageWriter {
 public:
  /// Values to work on in one go, at least: several blocks, whose chains of dependent instructions
  /// (largest, scale, inverse) then overlap, and few enough to stay in the L1 cache.
  static constexpr std::size_t kSmallestChunk = 512;

  MessageWriter(const ValueFormat& format, const CodingBody& body, const RandomKey& key,
                std::uint64_t count, std::span<std::byte> out)
      : body_(body),
        code_(format.rounding == Rounding::nearest ? body.nearest : body.stochastic),
        key_(key),
        count_(count),
        block_(format.block != 0 ? format.block : kSmallestChunk / 2),
        bits_(format.coding->bits),
        out_(out),
        scales_(format.block != 0 ? reinterpret_cast<float*>(out.data()) : nullptr),
        codes_(out.data() + ValueLayout(format, count).scale_bytes) {}

  std::size_t block() const { return block_; }
  /// A multiple of the block and of 64. Threads may part at its multiples.
  std::size_t chunk() const { return std::max(block_, kSmallestChunk); }

  /// Zeros at the ends of scales and codes, before anything else is written.
  void write_padding() const {
    if (codes_ != out_.data()) std::memset(codes_ - 8, 0, 8);
    if (count_ != 0) std::memset(out_.data() + out_.size() - 8, 0, 8);
  }

  /// The scales of the blocks of values x, n of them. x[0] is value `first` of the message, and the
  /// first of its block.
  void write_scales(std::uint64_t first, const float* x, std::size_t n) const {
    if (scales_ == nullptr) return;
    for (std::size_t i = 0; i < n; i += block_) {
      scales_[(first + i) / block_] = body_.scale(x + i, std::min(block_, n - i));
    }
  }

  /// Codes values whose scales are written; `first` is a multiple of 64. The error of the codes
  /// goes to `error`, which may be x. Where n is not a multiple of 64, all values to the end of the
  /// last unit are coded, as +0.
  void write_codes(std::uint64_t first, const float* x, std::size_t n, float* error) const {
    const std::size_t whole = n / kUnit * kUnit, rest = n - whole;
    UnitsToCode units{.x = x,
                      .error = error,
                      .units = whole / kUnit,
                      .first = first,
                      .codes = codes_ + first * bits_ / 8,
                      .scales = scales_,
                      .block = block_,
                      .key = key_};
    if (whole != 0) code_(units);
    if (rest == 0) return;
    alignas(64) float values[kUnit] = {};
    std::byte codes[kUnit * sizeof(float)];
    std::copy_n(x + whole, rest, values);
    units.x = units.error = values;
    units.units = 1;
    units.first = first + whole;
    units.codes = codes;
    code_(units);
    std::memcpy(codes_ + units.first * bits_ / 8, codes, bytes_of_unit(units.first));
    std::copy_n(values, rest, error + whole);
  }

  /// Codes +0 for n values, from a multiple of 64 on.
  void write_zeros(std::uint64_t first, std::size_t n) const {
    std::memset(codes_ + first * bits_ / 8, 0, (n * bits_ + 7) / 8);
  }

 private:
  /// The unit's codes, fewer at the message's end.
  std::size_t bytes_of_unit(std::uint64_t first) const {
    return (std::min<std::uint64_t>(kUnit, count_ - first) * bits_ + 7) / 8;
  }

  CodingBody body_;
  void (*code_)(const UnitsToCode& units);
  RandomKey key_;
  std::uint64_t count_;
  std::size_t block_;
  std::uint32_t bits_;
  std::span<std::byte> out_;
  float* scales_;
  std::byte* codes_;
};

}  // namespace winnow::kernels::cpu
