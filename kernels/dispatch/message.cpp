// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <bit>
#include <string>
#include <tuple>

#include "kernels/arithmetic/element.hpp"
#include "kernels/arithmetic/value.hpp"
#include "kernels/arithmetic/value_layout.hpp"
#include "kernels/call_status.hpp"
#include "kernels/checksum.hpp"
#include "kernels/cuda/ones_tiles.hpp"
#include "kernels/dispatch/bodies.hpp"
#include "kernels/dispatch/expect_message.hpp"
#include "kernels/finish_message.hpp"
#include "kernels/index_coding.hpp"
#include "kernels/message_header.hpp"
#include "kernels/value_coding.hpp"

namespace winnow::kernels {

// checksum.hpp

static_assert(std::endian::native == std::endian::little, "messages are little-endian in memory");

void checksums(const Exec& exec, std::span<const std::span<const std::byte>> messages,
               std::uint64_t* sums) {
  for (const std::span<const std::byte> message : messages) {
    WINNOW_EXPECTS(message.size() % 4 == 0, "checksum of bytes that are not whole 32-bit words");
    expect_word_aligned(message);
  }
  WINNOW_EXPECTS(messages.empty() || (sums != nullptr &&
                                      reinterpret_cast<std::uintptr_t>(sums) % sizeof *sums == 0),
                 "checksums need an 8-byte aligned place for the sums");
  dispatch(exec, &Bodies::checksums, messages, sums);
}

// index_coding.hpp

namespace {

/// bytes_of(job) is what the coding has of a part.
template <class BytesOf>
void expect_parts(std::span<const DecodeJob> jobs, const BytesOf& bytes_of) {
  for (const DecodeJob& job : jobs) {
    WINNOW_EXPECTS(job.count <= std::uint64_t{1} << 32 && job.index.size() <= job.count,
                   "an index part names at most count <= 2^32 positions; got count " +
                       std::to_string(job.count) + ", k " + std::to_string(job.index.size()));
    const std::uint64_t bytes = bytes_of(job);
    WINNOW_EXPECTS(job.in.size() == bytes, "these indices take " + std::to_string(bytes) +
                                               " bytes, not " + std::to_string(job.in.size()));
    expect_word_aligned(job.in);
    WINNOW_EXPECTS(job.refused != nullptr, "a decoder of indices needs a word for refused");
  }
}

}  // namespace

void raw32_decode(const Exec& exec, std::span<const DecodeJob> jobs) {
  expect_parts(jobs, [](const DecodeJob& job) { return raw32_bytes(job.index.size()); });
  dispatch(exec, &Bodies::raw32_decode, jobs);
}

void eliasfano_decode(const Exec& exec, std::span<const DecodeJob> jobs) {
  expect_parts(jobs, [](const DecodeJob& job) {
    return eliasfano_shape(job.count, job.index.size()).bytes();
  });
  dispatch(exec, &Bodies::eliasfano_decode, jobs);
}

void bitmap_decode(const Exec& exec, std::span<const DecodeJob> jobs) {
  expect_parts(jobs, [](const DecodeJob& job) { return bitmap_bytes(job.count); });
  dispatch(exec, &Bodies::bitmap_decode, jobs);
}

void seeded_decode(const Exec& exec, std::span<const DecodeJob> jobs) {
  for (const DecodeJob& job : jobs) {
    WINNOW_EXPECTS(job.count <= std::uint64_t{1} << 32 && job.index.size() <= job.count,
                   "seeded_decode draws at most count <= 2^32 indices; got count " +
                       std::to_string(job.count) + ", k " + std::to_string(job.index.size()));
  }
  dispatch(exec, &Bodies::seeded_decode, jobs);
}

/// The longest row of ones is Elias-Fano's without low bits, for k = count.
std::size_t decode_scratch(const Exec& exec, std::uint64_t count) {
  return exec.place == Place::cuda ? cuda::ones_scratch(count / 32 + 1) : 0;
}

// message_header.hpp

namespace {

void expect_messages(std::span<const MessageCheck> messages, const HeaderLayout& layout) {
  expect_layout(layout);
  for (const MessageCheck& message : messages) {
    expect_header(message.bytes);
    WINNOW_EXPECTS(message.sum != nullptr, "a message is checked by the checksum of its bytes");
  }
}

}  // namespace

void claimed_k(const Exec& exec, const ClaimedKJob& job) {
  expect_layout(job.layout);
  for (const MessageCheck& message : job.messages) expect_header(message.bytes);
  WINNOW_EXPECTS(job.k.size() == job.messages.size(), "each message needs a word for its k");
  dispatch(exec, &Bodies::claimed_k, job);
}

void check_headers(const Exec& exec, const CheckHeadersJob& job) {
  expect_messages(job.messages, job.layout);
  WINNOW_EXPECTS(job.status.size() == job.messages.size(),
                 "each message needs a word for its status");
  dispatch(exec, &Bodies::check_headers, job);
}

void check_messages(const Exec& exec, const CheckMessagesJob& job) {
  expect_messages(job.messages, job.layout);
  WINNOW_EXPECTS(job.status != nullptr, "messages are checked for the status of a call");
  dispatch(exec, &Bodies::check_messages, job);
}

// finish_message.hpp

namespace {

void expect_job(const FinishJob& job, std::uint64_t index_bytes) {
  expect_header(job.message);
  expect_layout(job.layout);
  const std::size_t bytes = job.message.size();
  WINNOW_EXPECTS(bytes % 4 == 0, "checksum of bytes that are not whole 32-bit words");
  WINNOW_EXPECTS(bytes - kHeaderBytes >= index_bytes,
                 "a message is no shorter than its header and its indices");
  WINNOW_EXPECTS(job.padding < 8 && (job.padding == 0 || bytes % 8 == 0),
                 "padding ends with a word of 8 bytes");
}

void expect_indices(const FinishJob& job, std::uint64_t index_bytes) {
  expect_job(job, index_bytes);
  WINNOW_EXPECTS(job.count <= std::uint64_t{1} << 32 && job.index.size() <= job.count,
                 "an index part names at most count <= 2^32 positions");
}

}  // namespace

void finish_message(const Exec& exec, const FinishJob& job) {
  expect_job(job, 0);
  dispatch(exec, &Bodies::finish_message, job);
}

void finish_raw32(const Exec& exec, const FinishJob& job) {
  expect_indices(job, raw32_bytes(job.index.size()));
  dispatch(exec, &Bodies::finish_raw32, job);
}

void finish_eliasfano(const Exec& exec, const FinishJob& job) {
  expect_indices(job, eliasfano_shape(job.count, job.index.size()).bytes());
  dispatch(exec, &Bodies::finish_eliasfano, job);
}

void finish_bitmap(const Exec& exec, const FinishJob& job) {
  expect_indices(job, bitmap_bytes(job.count));
  dispatch(exec, &Bodies::finish_bitmap, job);
}

// value_coding.hpp

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
      exec.place != Place::cuda || job.pieces.host.size() <= 1 || job.pieces.placed != nullptr,
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

// call_status.hpp

void end_call(const Exec& exec, const CallEnd& end) {
  WINNOW_EXPECTS(end.status != nullptr && end.report != nullptr && end.counts != nullptr,
                 "a call ends in its status, its report and its count of refusals");
  dispatch(exec, &Bodies::end_call, end);
}

}  // namespace winnow::kernels
