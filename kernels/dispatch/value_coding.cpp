// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/value_coding.hpp"

#include <array>
#include <bit>
#include <string>
#include <tuple>

#include "kernels/arithmetic/element.hpp"
#include "kernels/arithmetic/value.hpp"
#include "kernels/arithmetic/value_layout.hpp"
#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

namespace {

constexpr std::uint32_t kSmallestBlock = 64, kLargestBlock = 65536;
static_assert(kSmallestBlock % Partition::kUnit == 0);

void expect_format(const ValueFormat& format) {
  WINNOW_EXPECTS(valid_format(format),
                 "a value format must have a coding of the table, a block that is a power of two "
                 "from 64 to 65536 exactly where the coding has scales, and stochastic rounding "
                 "only where the coding can");
}

void expect_message(const ValueFormat& format, std::uint64_t k, std::span<const std::byte> coded) {
  const std::uint64_t bytes = value_bytes(format, k);
  WINNOW_EXPECTS(coded.size() == bytes,
                 std::to_string(k) + " values as " + std::string(format.coding->name) + " take " +
                     std::to_string(bytes) + " bytes, not " + std::to_string(coded.size()));
  WINNOW_EXPECTS(reinterpret_cast<std::uintptr_t>(coded.data()) % 8 == 0,
                 "coded values must be 8-byte aligned");
}

void expect_pieces(const Exec& exec, const FeedbackQuantizeJob& job) {
  std::uint64_t end = 0;
  for (const FeedbackPiece& piece : job.pieces.host) {
    WINNOW_EXPECTS(piece.gradient.size() == piece.residual.size(),
                   "gradient and residual must have as many elements");
    expect_gradient(piece.gradient.type());
    WINNOW_EXPECTS(piece.gradient.type() == job.pieces.host.front().gradient.type(),
                   "gradients that are coded in one pass must be of one type");
    WINNOW_EXPECTS(piece.base % Partition::kUnit == 0 && piece.base >= end,
                   "pieces must start at multiples of 64, ascend and not overlap");
    end = piece.base + piece.gradient.size();
  }
  WINNOW_EXPECTS(end <= job.partition.count(), "pieces must lie within the partition");
  WINNOW_EXPECTS(
      exec.place != Place::cuda || job.pieces.host.size() <= 1 || job.pieces.there != nullptr,
      "several pieces need their list in device memory");
}

}  // namespace

std::span<const ValueCoding> value_codings() {
  static constexpr auto kTable = std::apply(
      [](auto... all) { return std::array<ValueCoding, sizeof...(all)>{decltype(all)::kLine...}; },
      values::All{});
  static_assert([] {
    for (std::size_t i = 0; i < kTable.size(); ++i) {
      if (kTable[i].id != i + 1) return false;
    }
    return true;
  }());
  return kTable;
}

bool valid_format(const ValueFormat& format) {
  if (format.coding == nullptr) return false;
  const bool block_fits = format.coding->default_block == 0
                              ? format.block == 0
                              : format.block >= kSmallestBlock && format.block <= kLargestBlock &&
                                    std::has_single_bit(format.block);
  return block_fits && (format.rounding == Rounding::nearest || format.coding->stochastic);
}

std::uint64_t value_bytes(const ValueFormat& format, std::uint64_t k) {
  expect_format(format);
  return ValueLayout(format, k).bytes;
}

void quantize(const Exec& exec, const ValueFormat& format, const RandomKey& key,
              std::span<float> values, std::span<std::byte> out) {
  expect_message(format, values.size(), out);
  dispatch(exec, &Bodies::quantize, format, key, values, out);
}

void feedback_quantize(const Exec& exec, const FeedbackQuantizeJob& job) {
  expect_format(job.format);
  expect_pieces(exec, job);
  const std::uint32_t owners = job.partition.owners();
  WINNOW_EXPECTS(job.out.size() == owners, "there must be as many messages as owners");
  for (std::uint32_t o = 0; o < owners; ++o) {
    if (o != job.self) expect_message(job.format, job.partition.local_count(o), job.out[o]);
  }
  WINNOW_EXPECTS(job.own.size() == (job.self < owners ? job.partition.local_count(job.self) : 0),
                 "own must have as many elements as self has positions");
  WINNOW_EXPECTS(job.not_finite != nullptr, "feedback_quantize needs a word for not_finite");
  WINNOW_EXPECTS(exec.place == Place::cuda || exec.workspace != nullptr,
                 "feedback_quantize needs Exec::workspace");
  dispatch(exec, &Bodies::feedback_quantize, job);
}

void check_values(const Exec& exec, const ValueFormat& format,
                  std::span<const CheckValuesJob> jobs) {
  for (const CheckValuesJob& job : jobs) {
    expect_message(format, job.k, job.coded);
    WINNOW_EXPECTS(job.refused != nullptr, "check_values needs a word for refused");
  }
  dispatch(exec, &Bodies::check_values, format, jobs);
}

void dequantize(const Exec& exec, const ValueFormat& format, std::uint64_t k,
                std::span<const std::byte> coded, std::uint64_t begin, std::span<float> out) {
  expect_message(format, k, coded);
  WINNOW_EXPECTS(begin <= k && out.size() <= k - begin,
                 "the decoded range must lie within the k values");
  dispatch(exec, &Bodies::dequantize, format, k, coded, begin, out);
}

}  // namespace winnow::kernels
