// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>
#include <winnow/error.hpp>

#include "kernels/cuda/checksum.hpp"
#include "kernels/cuda/eliasfano.hpp"
#include "kernels/cuda/indices.hpp"
#include "kernels/cuda/message_header.hpp"
#include "kernels/cuda/seal.hpp"
#include "kernels/cuda/value_coding.hpp"
#include "kernels/cuda/verdict.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/feedback.hpp"
#include "kernels/feedback_select.hpp"
#include "kernels/half.hpp"
#include "kernels/memory_ops.hpp"
#include "kernels/merge.hpp"
#include "kernels/ordered_sum.hpp"
#include "kernels/owned.hpp"
#include "kernels/put_back.hpp"
#include "kernels/reduce.hpp"
#include "kernels/residual_add.hpp"
#include "kernels/select_sums.hpp"
#include "kernels/split.hpp"
#include "kernels/take.hpp"

namespace winnow {
namespace {

TEST(BuiltWithoutCuda, DeviceMemoryIsRefusedAndUntouched) {
  std::vector<float> residual{1, 2}, gradient{3, 4};
  EXPECT_THAT([&] { kernels::residual_add(Exec{.place = Place::cuda}, residual, gradient); },
              testing::ThrowsMessage<UsageError>(testing::HasSubstr("built without CUDA")));
  EXPECT_EQ(residual, (std::vector<float>{1, 2}));
}

TEST(BuiltWithoutCuda, DeviceInterfacesSaySo) {
  const auto refuses = testing::ThrowsMessage<UsageError>(testing::HasSubstr("built without CUDA"));
  const kernels::ValueFormat format{&kernels::value_codings()[0]};
  std::vector<float> values(2);
  std::vector<std::byte> out(8);
  EXPECT_THAT([&] { kernels::quantize({.place = Place::cuda}, format, {}, values, out); }, refuses);
  EXPECT_THAT([&] { kernels::dequantize({.place = Place::cuda}, format, 2, out, 0, values); },
              refuses);
  EXPECT_THAT([&] { kernels::cuda::feedback_quantize({}, {}, format, {}); }, refuses);
  EXPECT_THAT([&] { kernels::put_back({.place = Place::cuda}, values, 0, {}); }, refuses);
  EXPECT_THAT([&] { kernels::ordered_sum({.place = Place::cuda}, {.sum = values}); }, refuses);
  EXPECT_THAT([&] { (void)kernels::place_terms({.place = Place::cuda}, {}); }, refuses);
  EXPECT_THAT([&] { kernels::cuda::eliasfano_decode({}, {}); }, refuses);
  EXPECT_THAT([&] { (void)kernels::cuda::eliasfano_decode_scratch(1, 1); }, refuses);
  EXPECT_THAT([&] { kernels::cuda::raw32_decode({}, {}); }, refuses);
  EXPECT_THAT([&] { kernels::cuda::bitmap_decode({}, {}); }, refuses);
  EXPECT_THAT([&] { (void)kernels::cuda::bitmap_decode_scratch(1); }, refuses);
  std::uint64_t size = 0;
  EXPECT_THAT([&] { kernels::merge({.place = Place::cuda}, {.size = &size}); }, refuses);
  EXPECT_THAT([&] { kernels::cuda::seal({}, {}); }, refuses);
  EXPECT_THAT([&] { kernels::cuda::seal_raw32({}, {}, 1, {}); }, refuses);
  EXPECT_THAT([&] { kernels::cuda::seal_eliasfano({}, {}, 1, {}); }, refuses);
  EXPECT_THAT([&] { kernels::cuda::seal_bitmap({}, {}, 1, {}); }, refuses);
  EXPECT_THAT([&] { kernels::cuda::judge_messages({}, {}, {}, nullptr); }, refuses);
  EXPECT_THAT([&] { kernels::cuda::check_headers({}, {}, {}, {}); }, refuses);
  constexpr Exec kCuda{.place = Place::cuda};
  std::vector<std::uint32_t> words(2);
  EXPECT_THAT([&] { kernels::add_owned(kCuda, {}); }, refuses);
  EXPECT_THAT([&] { kernels::store_owned(kCuda, {}); }, refuses);
  EXPECT_THAT([&] { kernels::write_owned(kCuda, {}, 1, words.data()); }, refuses);
  EXPECT_THAT([&] { kernels::take_owned(kCuda, {}, {}); }, refuses);
  EXPECT_THAT([&] { kernels::split_by_owner(kCuda, {.begin = words}); }, refuses);
  EXPECT_THAT([&] { (void)kernels::split_scratch(kCuda, kernels::Partition(1, 1), 1); }, refuses);
  EXPECT_THAT([&] { kernels::positions_of(kCuda, kernels::Partition(1, 1), 0, {}, {}); }, refuses);
}

TEST(BuiltWithoutCuda, SelectionsSaySo) {
  const auto refuses = testing::ThrowsMessage<UsageError>(testing::HasSubstr("built without CUDA"));
  constexpr Exec kCuda{.place = Place::cuda};
  kernels::SelectBound state;
  kernels::SelectResult result{};
  std::uint64_t kept = 0;
  EXPECT_THAT([&] { kernels::feedback_select(kCuda, {.state = &state, .result = &result}); },
              refuses);
  EXPECT_THAT([&] { (void)kernels::feedback_select_scratch(kCuda, 1, 1); }, refuses);
  EXPECT_THAT(
      [&] { kernels::feedback_threshold(kCuda, {.bound = 1, .kept = &kept, .result = &result}); },
      refuses);
  EXPECT_THAT([&] { (void)kernels::feedback_threshold_scratch(kCuda, 1); }, refuses);
}

TEST(BuiltWithoutCuda, ElementwiseInterfacesSaySo) {
  const auto refuses = testing::ThrowsMessage<UsageError>(testing::HasSubstr("built without CUDA"));
  constexpr Exec kCuda{.place = Place::cuda};
  const kernels::ValueFormat format{&kernels::value_codings()[0]};
  std::vector<float> values(2);
  std::vector<std::uint16_t> halves(2);
  std::vector<std::uint32_t> index(2);
  std::vector<std::byte> bytes(8);
  EXPECT_THAT([&] { kernels::scale(kCuda, values, 2); }, refuses);
  EXPECT_THAT([&] { kernels::all_finite({}, values, nullptr); }, refuses);
  EXPECT_THAT([&] { kernels::zero({}, bytes); }, refuses);
  EXPECT_THAT([&] { kernels::fill(kCuda, values, 1); }, refuses);
  EXPECT_THAT([&] { kernels::copy(kCuda, bytes, bytes); }, refuses);
  EXPECT_THAT([&] { kernels::feedback_add(kCuda, values, values, 1); }, refuses);
  EXPECT_THAT([&] { kernels::feedback_keep(kCuda, values, values, 1); }, refuses);
  EXPECT_THAT([&] { kernels::widen(kCuda, ElementType::bf16, halves, values); }, refuses);
  EXPECT_THAT([&] { kernels::narrow(kCuda, ElementType::bf16, values, halves); }, refuses);
  EXPECT_THAT([&] { kernels::fits({}, ElementType::bf16, values, 1, nullptr); }, refuses);
  EXPECT_THAT([&] { kernels::reduce(kCuda, ReduceOp::sum, values, values); }, refuses);
  EXPECT_THAT([&] { kernels::average(kCuda, values, 2); }, refuses);
  EXPECT_THAT([&] { kernels::to_ordered({}, values, ReduceOp::minimum); }, refuses);
  EXPECT_THAT([&] { kernels::from_ordered({}, values); }, refuses);
  EXPECT_THAT([&] { kernels::take(kCuda, values, 0, index, values); }, refuses);
  EXPECT_THAT([&] { kernels::put(kCuda, values, 0, {index, values}); }, refuses);
  EXPECT_THAT([&] { kernels::cuda::checksums({}, {}, nullptr); }, refuses);
  EXPECT_THAT([&] { kernels::cuda::check_values({}, format, 2, bytes, nullptr); }, refuses);
  EXPECT_THAT([&] { (void)kernels::select_sums_scratch(kCuda, {}, 1, 1); }, refuses);
}

}  // namespace
}  // namespace winnow
