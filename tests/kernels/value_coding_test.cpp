// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/value_coding.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>
#include <winnow/error.hpp>

#include "lab/reference/place.hpp"
#include "tests/harness/kernel_place.hpp"
#include "tests/kernels/answers.hpp"
#include "tests/kernels/cases/check_cases.hpp"
#include "tests/kernels/float_modes.hpp"
#include "tests/kernels/inputs.hpp"
#include "tests/kernels/value_formats.hpp"

namespace winnow::tests {
namespace {

using kernels::RandomKey;
using kernels::Rounding;
using kernels::value_bytes;
using kernels::ValueFormat;

const Exec kReference{.place = lab::kReference};
constexpr RandomKey kKey{.seed = 0x123456789abcdef0, .call = 9, .rank = 3, .stage = 70};

struct Outcome {
  Coded coded;
  std::vector<float> error, decoded;
};

std::vector<float> decoded_on(const Exec& exec, const ValueFormat& format, std::size_t k,
                              Coded coded, std::size_t begin, std::size_t size) {
  OnPlace<std::byte> there(exec, coded.span());
  OnPlace<float> out(exec, size + begin % 4);  // may be off the alignment of vectors
  kernels::dequantize(exec, format, k, there.span(), begin, out.span().subspan(begin % 4));
  std::vector<float> values = out.download();
  values.erase(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(begin % 4));
  return values;
}

Outcome run_on(const Exec& exec, const ValueFormat& format, const std::vector<float>& values) {
  Outcome out{Coded(format, values.size()), {}, {}};
  OnPlace<float> there(exec, values);
  OnPlace<std::byte> coded(exec, out.coded.span());
  kernels::quantize(exec, format, kKey, there.span(), coded.span());
  std::ranges::copy(coded.download(), out.coded.span().begin());
  out.error = there.download();
  out.decoded = decoded_on(exec, format, values.size(), out.coded, 0, values.size());
  return out;
}

bool accepts_on(const Exec& exec, const ValueFormat& format, std::uint64_t k,
                std::span<const std::byte> coded) {
  OnPlace<std::byte> there(exec, coded);
  OnPlace<std::uint32_t> refused(exec, 1);
  const kernels::CheckValuesJob job{k, there.span(), refused.data()};
  kernels::check_values(exec, format, {&job, 1});
  return refused.download().front() == 0;
}

void expect_equal(const Outcome& got, const Outcome& expected) {
  EXPECT_TRUE(got.coded == expected.coded);
  EXPECT_TRUE(same_bits(got.error, expected.error));
  EXPECT_TRUE(same_bits(got.decoded, expected.decoded));
}

TEST(ValueCoding, TableHasTheCodingsByTheirId) {
  const auto codings = kernels::value_codings();
  for (std::size_t i = 0; i < codings.size(); ++i) EXPECT_EQ(codings[i].id, i + 1);
}

TEST(ValueCoding, BytesArePaddedScalesAndPaddedCodes) {
  EXPECT_EQ(value_bytes(make_format("float32"), 0), 0u);
  EXPECT_EQ(value_bytes(make_format("float32"), 3), 16u);
  EXPECT_EQ(value_bytes(make_format("bf16"), 3), 8u);
  EXPECT_EQ(value_bytes(make_format("fp16"), 5), 16u);
  EXPECT_EQ(value_bytes(make_format("int8"), 257), 8u + 264u);
  EXPECT_EQ(value_bytes(make_format("int4"), 257), 16u + 136u);
  EXPECT_EQ(value_bytes(make_format("sign"), 513), 8u + 72u);
  EXPECT_EQ(value_bytes(make_format("int2"), 513), 8u + 136u);
  EXPECT_EQ(value_bytes(make_format("fp8"), 513), 8u + 520u);
  EXPECT_EQ(value_bytes(make_format("mean"), 512), 8u);
  EXPECT_EQ(value_bytes(make_format("mean"), 1025), 16u);
  EXPECT_EQ(value_bytes(make_format("float32"), (std::uint64_t{1} << 56) - 1),
            std::uint64_t{1} << 58);
}

TEST(ValueCoding, EqualsReferenceAtAwkwardSizes) {
  struct Case {
    ValueFormat format;
    Values kind;
    std::vector<float> values;
    Outcome expected;
  };
  std::vector<Case> cases;
  for (const ValueFormat& format : all_formats()) {
    for (const Values kind : kValues) {
      for (const std::size_t count : {0U, 1U, 2U, 33U, 63U, 64U, 65U, 255U, 257U, 4097U, 12'345U}) {
        const std::vector<float> values = make_values(kind, count, 1);
        cases.push_back({format, kind, values, run_on(kReference, format, values)});
      }
    }
  }
  for_each_body([&](const Exec& exec) {
    for (Case& c : cases) {
      SCOPED_TRACE(testing::Message() << name_of(c.format) << ", " << c.values.size()
                                      << " values of kind " << static_cast<int>(c.kind));
      expect_equal(run_on(exec, c.format, c.values), c.expected);
      EXPECT_TRUE(accepts_on(exec, c.format, c.values.size(), c.expected.coded.span()));
    }
  });
}

TEST(ValueCoding, ChecksEqualReference) {
  for_each_body([](const Exec& exec) {
    expect_checks_equal_reference(
        [&](const ValueFormat& format, std::uint64_t k, std::span<const std::byte> coded) {
          return accepts_on(exec, format, k, coded);
        });
  });
}

TEST(ValueCoding, AnyPartDecodesAsTheWhole) {
  constexpr std::size_t kCount = 9000;
  for_each_body([](const Exec& exec) {
    for (const ValueFormat& format : all_formats()) {
      SCOPED_TRACE(name_of(format));
      const Outcome out = run_on(kReference, format, make_values(Values::normal, kCount, 7));
      for (const std::size_t begin : {0U, 1U, 63U, 64U, 130U, 511U, 4096U, 8999U}) {
        for (const std::size_t size : {0U, 1U, 2U, 63U, 64U, 65U, 300U, 8500U}) {
          if (begin + size > kCount) continue;
          const auto whole = std::span<const float>(out.decoded).subspan(begin, size);
          EXPECT_TRUE(same_bits(decoded_on(exec, format, kCount, out.coded, begin, size), whole))
              << begin << ' ' << size;
        }
      }
    }
  });
}

TEST(ValueCoding, ChecksRefuseWhatIsNeverWritten) {
  constexpr std::size_t kCount = 1001;
  for_each_body([](const Exec& exec) {
    for (const ValueFormat& format : all_formats()) {
      SCOPED_TRACE(name_of(format));
      const Outcome good = run_on(kReference, format, make_values(Values::normal, kCount, 8));
      const auto refused = [&](std::size_t byte, std::byte flip, std::byte keep = std::byte{0xff}) {
        Coded bad = good.coded;
        bad.span()[byte] = (bad.span()[byte] & keep) ^ flip;
        EXPECT_FALSE(accepts_on(exec, format, kCount, bad.span())) << byte;
      };
      const std::uint32_t bits = format.coding->bits;
      const std::size_t scales = format.block == 0 ? 0 : (kCount + format.block - 1) / format.block;
      const std::size_t codes = (4 * scales + 7) / 8 * 8, end = codes + (kCount * bits + 7) / 8;
      const std::size_t bytes = value_bytes(format, kCount);
      constexpr std::byte kOne{1}, kHigh{0x80};
      if (end < bytes) refused(end, kOne);
      if (end < bytes) refused(bytes - 1, kHigh);
      if (kCount * bits % 8 != 0) refused(end - 1, kHigh);
      if (4 * scales < codes) refused(codes - 1, kHigh);
      const bool one_sign = format.coding->one_sign;
      for (std::size_t s = 0; s < scales && !one_sign; ++s) refused(4 * s + 3, kHigh);  // negative
      for (const std::uint32_t code : invalid_codes(*format.coding)) {
        for (const std::size_t i : {0U, 1U, 2U, 3U, 400U, 1000U}) {
          const auto shift = static_cast<int>(i * bits % 8);
          refused(codes + i * bits / 8, std::byte(code) << shift,
                  ~(std::byte((1U << bits) - 1) << shift));
        }
      }
      for (const float scale :
           {std::numeric_limits<float>::infinity(), -0.0f, -1.0f,
            std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::max()}) {
        if (scales == 0 || (bits == 1 && scale == std::numeric_limits<float>::max())) continue;
        if (one_sign && std::isfinite(scale)) continue;
        Coded bad = good.coded;
        std::memcpy(bad.span().data() + 4 * (scales - 1), &scale, sizeof scale);
        EXPECT_FALSE(accepts_on(exec, format, kCount, bad.span())) << scale;
      }
    }
  });
}

TEST(ValueCoding, RefusesWrongUse) {
  std::vector<float> values(100);
  Coded coded(make_format("int8"), 100);
  ValueFormat format = make_format("int8");
  const auto attempt = [&](const ValueFormat& f, std::span<std::byte> out) {
    kernels::quantize({}, f, kKey, values, out);
  };
  EXPECT_THROW(attempt(format, coded.span().first(104)), UsageError);
  EXPECT_THROW(attempt(format, Coded(format, 120).span().subspan(4, 112)), UsageError);
  for (const std::uint32_t block : {0u, 32u, 63u, 96u, 131072u}) {
    EXPECT_THROW(attempt({format.coding, block}, coded.span()), UsageError) << block;
  }
  EXPECT_THROW(attempt({}, coded.span()), UsageError);
  EXPECT_THROW(value_bytes({make_format("bf16").coding, 64}, 100), UsageError);
  EXPECT_THROW(value_bytes(make_format("sign", Rounding::stochastic), 100), UsageError);
  EXPECT_THROW(value_bytes(make_format("int2", Rounding::stochastic), 100), UsageError);
  EXPECT_THROW(value_bytes(make_format("mean", Rounding::stochastic), 100), UsageError);
  EXPECT_THROW(value_bytes(make_format("float32", Rounding::stochastic), 100), UsageError);
  EXPECT_THROW(kernels::dequantize({}, format, 100, coded.span(), 1, values), UsageError);
  std::uint32_t refused = 0;
  const auto check = [](const ValueFormat& f, const kernels::CheckValuesJob& job) {
    kernels::check_values({}, f, {&job, 1});
  };
  EXPECT_THROW(check(format, {1000, coded.span(), &refused}), UsageError);
  EXPECT_THROW(check(format, {100, coded.span(), nullptr}), UsageError);
  for (const ValueFormat& sound : all_formats()) {
    ValueFormat wrong = sound;
    wrong.block = 3;
    Coded message(sound, 100);
    EXPECT_THROW(check(wrong, {100, message.span(), &refused}), UsageError);
  }
}

TEST(ValueCoding, DoesNotDependOnTheCallersFloatMode) {
  for_each_body([](const Exec& exec) {
    for (const ValueFormat& format : all_formats()) {
      SCOPED_TRACE(name_of(format));
      const std::vector<float> values = make_values(Values::denormal, 1000, 9);
      const Outcome expected = run_on(kReference, format, values);
      const FlushToZero flush;
      expect_equal(run_on(exec, format, values), expected);
    }
  });
}

}  // namespace
}  // namespace winnow::tests
