// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <vector>

#include "kernels/arithmetic/value_layout.hpp"
#include "lab/reference/place.hpp"
#include "tests/kernels/answers.hpp"
#include "tests/kernels/value_formats.hpp"

namespace winnow::tests {

// Cases of check_values for bodies that run on a device, or on the model of one.

using CheckBody =
    std::function<bool(const kernels::ValueFormat&, std::uint64_t k, std::span<const std::byte>)>;

/// Sound messages, and these messages with one bit changed or with a code or a scale that no
/// encoder writes. The body must accept exactly what the reference accepts.
inline void expect_checks_equal_reference(const CheckBody& body) {
  const Exec kReference{.place = lab::kReference};
  for (const kernels::ValueFormat& format : all_formats()) {
    for (const std::size_t k : {0U, 1U, 15U, 64U, 129U, 1001U}) {
      SCOPED_TRACE(testing::Message() << name_of(format) << ", " << k << " values");
      std::vector<float> values = make_values(Values::cauchy, k, 3);
      Coded coded(format, k);
      const std::span<std::byte> bytes = coded.span();
      kernels::quantize(kReference, format, {}, values, bytes);
      EXPECT_TRUE(body(format, k, bytes));
      bool refused = false;
      const auto expect_same_answer = [&] {
        const bool accepts = are_sound_values(kReference, format, k, bytes);
        EXPECT_EQ(body(format, k, bytes), accepts);
        refused = refused || !accepts;
      };
      const std::size_t bits = 8 * bytes.size();
      for (std::size_t bit = 0; bit < bits; bit += bits / 12 + 1) {
        for (const std::size_t at : {bit, bits - 1 - bit}) {  // padding is at the end
          bytes[at / 8] ^= std::byte{1} << (at % 8);
          expect_same_answer();
          bytes[at / 8] ^= std::byte{1} << (at % 8);
        }
      }
      const kernels::ValueLayout layout(format, k);
      for (std::size_t at = 0; at < bytes.size(); at += bytes.size() / 5 + 1) {
        const std::byte was = bytes[at];
        for (const std::uint32_t code : invalid_codes(*format.coding)) {
          for (std::uint32_t shift = 0; shift < 8; shift += format.coding->bits) {
            bytes[at] = std::byte(code << shift);
            expect_same_answer();
          }
        }
        bytes[at] = was;
      }
      for (const std::uint64_t s : {std::uint64_t{0}, layout.scales - 1}) {
        if (layout.scales == 0) break;
        std::byte* const at = bytes.data() + s * sizeof(float);
        float was = 0;
        std::memcpy(&was, at, sizeof was);
        for (const float scale :
             {-0.0F, -1.0F, std::numeric_limits<float>::quiet_NaN(),
              std::numeric_limits<float>::infinity(), std::numeric_limits<float>::max(),
              std::numeric_limits<float>::max() / 127, std::numeric_limits<float>::max() / 7,
              std::numeric_limits<float>::max() / 3, std::numeric_limits<float>::max() / 448}) {
          std::memcpy(at, &scale, sizeof scale);
          expect_same_answer();
        }
        std::memcpy(at, &was, sizeof was);
      }
      EXPECT_TRUE(body(format, k, bytes));
      EXPECT_EQ(refused, layout.scales > 0 || k * format.coding->bits % 64 != 0);
    }
  }
}

/// Messages of several lengths, one of them empty and one damaged in its padding, which the
/// body checks at once.
inline void expect_shared_check(
    const std::function<void(const kernels::ValueFormat&,
                             std::span<const kernels::CheckValuesJob>)>& body) {
  constexpr std::size_t kLengths[] = {1001, 0, 15, 4097, 33, 9001}, kDamaged = 3;
  constexpr std::size_t kMessages = std::size(kLengths);
  const Exec kReference{.place = lab::kReference};
  for (const kernels::ValueFormat& format : all_formats()) {
    SCOPED_TRACE(name_of(format));
    std::vector<Coded> coded;
    for (const std::size_t k : kLengths) {
      std::vector<float> values = make_values(Values::cauchy, k, 3);
      kernels::quantize(kReference, format, {}, values, coded.emplace_back(format, k).span());
    }
    const std::span<std::byte> damaged = coded[kDamaged].span();
    std::ranges::fill(damaged.last(8), std::byte{0xff});
    std::vector<std::uint32_t> refused(kMessages), expected(kMessages);
    expected[kDamaged] = 1;
    ASSERT_FALSE(are_sound_values(kReference, format, kLengths[kDamaged], damaged));
    std::vector<kernels::CheckValuesJob> jobs;
    for (std::size_t m = 0; m < kMessages; ++m) {
      jobs.push_back({kLengths[m], coded[m].span(), &refused[m]});
    }
    body(format, jobs);
    EXPECT_TRUE(refused == expected);
  }
}

}  // namespace winnow::tests
