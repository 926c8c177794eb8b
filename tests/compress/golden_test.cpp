// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "compress/index_coding.hpp"
#include "compress/message.hpp"
#include "lab/reference/place.hpp"
#include "tests/compress/messages.hpp"
#include "tests/kernels/inputs.hpp"

// tests/golden/make_golden.py writes the messages from the specification, without Winnow's code;
// what they say is stated here a second time, without that script and without Winnow's arithmetic.

namespace winnow::compress {
namespace {

using namespace tests;
using Kind = Header::Kind;

/// Messages of gradient_header(count, k), changed as said: value number n at position(n).
struct Golden {
  std::string name;
  std::uint64_t count, k;
  std::function<std::uint32_t(std::uint32_t n)> position;
  std::function<float(std::uint32_t n)> value;
  Codings codings = {};
  Kind kind = Kind::gradient;
  std::uint16_t flags = 0;
};

/// 1.5, -2.5, 3.5, ...
float ramp_value(std::uint32_t n) {
  return (static_cast<float>(n) + 1.5f) * (n % 2 == 0 ? 1.0f : -1.0f);
}

std::function<float(std::uint32_t)> table(const std::vector<float>& values) {
  return [=](std::uint32_t n) { return values.at(n); };
}

/// -127 to 127 in steps of 37, modulo 255, times the scale of the block.
std::function<float(std::uint32_t)> int8_values(std::uint32_t block,
                                                const std::vector<float>& scales) {
  return [=](std::uint32_t n) {
    return static_cast<float>(static_cast<int>(37 * n % 255) - 127) * scales.at(n / block);
  };
}

/// -7 to 7 in steps of 4, modulo 15, times the scale of the block.
std::function<float(std::uint32_t)> int4_values(std::uint32_t block,
                                                const std::vector<float>& scales) {
  return [=](std::uint32_t n) {
    return static_cast<float>(static_cast<int>(4 * n % 15) - 7) * scales.at(n / block);
  };
}

/// The scale of the block, negative for every third value.
std::function<float(std::uint32_t)> sign_values(std::uint32_t block,
                                                const std::vector<float>& scales) {
  return [=](std::uint32_t n) { return n % 3 == 0 ? -scales.at(n / block) : scales.at(n / block); };
}

/// 1, -3, 3, 3, -1, and so on, times the scale of the block.
std::function<float(std::uint32_t)> int2_values(std::uint32_t block,
                                                const std::vector<float>& scales) {
  return [=](std::uint32_t n) {
    constexpr float kLevels[] = {1, -3, 3, 3, -1};
    return kLevels[n % 5] * scales.at(n / block);
  };
}

/// The numbers of E4M3 by their codes, 0 to 448, again and again, every other one negative, times
/// the scale of the block.
std::function<float(std::uint32_t)> fp8_values(std::uint32_t block,
                                               const std::vector<float>& scales) {
  return [=](std::uint32_t n) {
    const int exponent = static_cast<int>(n % 127 / 8), fraction = static_cast<int>(n % 127 % 8);
    const int whole = exponent == 0 ? fraction : 8 + fraction;
    const float size = std::ldexp(static_cast<float>(whole), std::max(exponent, 1) - 10);
    return (n % 2 == 0 ? size : -size) * scales.at(n / block);
  };
}

std::vector<Golden> golden() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float largest_of_int8 = std::bit_cast<float>(0x7c010202u);
  const float largest_of_int4 = std::bit_cast<float>(0x7e124922u);
  const float largest_of_fp8 = std::bit_cast<float>(0x7b124922u);
  const auto identity = [](std::uint32_t n) { return n; };
  std::vector<float> poison = ramp(5);
  poison.push_back(std::bit_cast<float>(0x7fc00000u));
  poison.push_back(-kInfinity);
  const std::vector<std::uint32_t> few{0, 1, 5, 39}, ends{0, 1, 299};
  const std::vector<std::uint32_t> drawn{141, 277, 289, 462, 706, 770, 873};
  return {
      {"nothing_kept", 10, 0, identity, ramp_value},
      {"everything_kept", 3, 3, identity,
       table({1, -0.0f, std::numeric_limits<float>::denorm_min()})},
      {"raw32", 1000, 1, [](std::uint32_t) { return 999; }, ramp_value},
      {"eliasfano_no_low_bits", 40, 4, [=](std::uint32_t n) { return few[n]; }, ramp_value},
      {"eliasfano", 1000, 21, [](std::uint32_t n) { return 2 * n * n; }, ramp_value},
      {"poison", 4000000000, 7, [](std::uint32_t n) { return 571428571 * n; }, table(poison),
       Codings{}, Kind::gradient, Header::kPoison},
      {"bitmap", 100, 34, [](std::uint32_t n) { return 3 * n; }, ramp_value},
      {"contribution", 129, 12, [](std::uint32_t n) { return n * n; }, ramp_value, Codings{},
       Kind::contribution},
      {"partial", 2000, 40, [](std::uint32_t n) { return n * (n + 11); }, ramp_value, Codings{},
       Kind::partial},
      {"bf16_sum_poison", 5000, 7, [](std::uint32_t n) { return 700 * n + 77; },
       table({1.5f, -2.5f, -0.0f, 0x1p-133f, 0x1.fep127f, -kInfinity, 0x1.56p-2f}),
       codings_of("bf16"), Kind::sum, Header::kPoison},
      {"fp16_raw32", 1000, 10, [](std::uint32_t n) { return 100 * n + 99; },
       table({1.5f, -2.5f, -0.0f, 0x1p-24f, -1023 * 0x1p-24f, 65504, -65504, 0x1.554p-2f, 65536,
              -131008}),
       codings_of("fp16", &kRaw32Coding)},
      {"int8", 3000, 300, [](std::uint32_t n) { return 9 * n + n % 5; },
       int8_values(256, {0.125f, largest_of_int8}), codings_of("int8", nullptr, 256), Kind::sum},
      {"int8_block_64", 1000, 150, [](std::uint32_t n) { return 6 * n + n % 5; },
       int8_values(64, {0.5f, 3, 0x1p-100f}), codings_of("int8", nullptr, 64), Kind::contribution},
      {"int4_everything", 261, 261, identity, int4_values(128, {0.25f, 1.5f, largest_of_int4}),
       codings_of("int4", nullptr, 128), Kind::sum},
      {"int4_block_64_bitmap", 200, 70, [](std::uint32_t n) { return 5 * n / 2; },
       int4_values(64, {5, 0.75f}), codings_of("int4", nullptr, 64), Kind::contribution},
      {"sign", 5000, 520, [](std::uint32_t n) { return 9 * n + n % 7; },
       sign_values(512, {0.1f, std::numeric_limits<float>::max()}),
       codings_of("sign", nullptr, 512)},
      {"sign_block_65536_bitmap", 300, 3, [=](std::uint32_t n) { return ends[n]; },
       table({0.3f, -0.3f, 0.3f}), codings_of("sign", &kBitmapCoding, 65536)},
      {"fp8", 5000, 520, [](std::uint32_t n) { return 9 * n + n % 7; },
       fp8_values(512, {0.5f, largest_of_fp8}), codings_of("fp8", nullptr, 512)},
      {"int2", 5000, 523, [](std::uint32_t n) { return 9 * n + n % 5; },
       int2_values(512, {0.75f, std::numeric_limits<float>::max() / 3}),
       codings_of("int2", nullptr, 512)},
      {"mean", 5000, 520, [](std::uint32_t n) { return 9 * n + n % 7; },
       [](std::uint32_t n) { return n < 512 ? -0.1f : -std::numeric_limits<float>::max(); },
       codings_of("mean", nullptr, 512)},
      {"seeded", 1000, 7, [=](std::uint32_t n) { return drawn[n]; }, ramp_value,
       codings_of("float32", &kSeededCoding)},
  };
}

constexpr std::uint32_t kOwner = 3;  // of the messages that have one

TEST(Golden, SaysWhatIsStatedHere) {
  for (const Golden& g : golden()) {
    SCOPED_TRACE(g.name);
    Bytes file = golden_message(g.name);
    Header header = gradient_header(g.count, g.k);
    header.kind = g.kind;
    if (g.kind == Kind::contribution || g.kind == Kind::sum) header.owner = kOwner;
    std::vector<std::uint32_t> index;
    std::vector<float> value;
    for (std::uint32_t n = 0; n < g.k; ++n) {
      if (g.k != g.count) index.push_back(g.position(n));
      value.push_back(g.value(n));
    }
    for (const Place place : {lab::kReference, Place::host}) {
      Workspace workspace;
      const Workspace::Scope scope(workspace);
      const Exec exec{.place = place, .workspace = &workspace};
      const MessageView view = decode(exec, file.span(), header, kSender, g.codings);
      EXPECT_EQ(view.header.flags, g.flags);
      EXPECT_TRUE(std::ranges::equal(view.term.index, index));
      const Shape shape = shape_of(g.count, g.k, g.codings);
      const auto value_part = view.bytes.last(shape.value_bytes);
      std::vector<float> decoded(g.k);
      kernels::dequantize(exec, g.codings.value, g.k, value_part, 0, decoded);
      EXPECT_EQ(bits_of(decoded), bits_of(value));
      EXPECT_EQ(bits_of(view.term.value),
                g.codings.exact() ? bits_of(value) : std::vector<std::uint32_t>{});

      Bytes again(file.span().size());
      std::ranges::fill(again.span(), std::byte{0xa5});
      const MessageLayout layout = lay_out(shape, again.span());
      std::ranges::copy(value_part, layout.value_part.begin());
      header.flags = g.flags;
      finish_message(exec, header, shape, view.term.index, again.span(), g.codings);
      EXPECT_TRUE(std::ranges::equal(again.span(), file.span()));
    }
  }
}

TEST(Golden, ASupportHasNoValues) {
  struct Case {
    std::string name;
    std::uint64_t count, k;
    std::uint16_t flags;
  };
  for (const auto& [name, count, k, flags] :
       {Case{"support", 100000, 300, 0},
        Case{"support_everything_poison", 129, 129, Header::kPoison}}) {
    SCOPED_TRACE(name);
    Bytes file = golden_message(name);
    Header header = gradient_header(count, k);
    header.kind = Kind::support;
    header.owner = kOwner;
    std::vector<std::uint32_t> index;
    for (std::uint32_t n = 0; k != count && n < k; ++n) index.push_back(n * n + 63);
    const Codings codings = Codings{}.without_values();
    for (const Place place : {lab::kReference, Place::host}) {
      Workspace workspace;
      const Workspace::Scope scope(workspace);
      const Exec exec{.place = place, .workspace = &workspace};
      const MessageView view = decode(exec, file.span(), header, kSender, codings);
      EXPECT_EQ(view.header.flags, flags);
      EXPECT_TRUE(std::ranges::equal(view.term.index, index));
      EXPECT_EQ(view.term.size(), 0u);

      const Shape shape = shape_of(count, k, codings);
      EXPECT_EQ(shape.bytes(), file.span().size());
      Bytes again(file.span().size());
      std::ranges::fill(again.span(), std::byte{0xa5});
      Header flagged = header;
      flagged.flags = flags;
      finish_message(exec, flagged, shape, view.term.index, again.span(), codings);
      EXPECT_TRUE(std::ranges::equal(again.span(), file.span()));
    }
    // As what carries values it is refused, whatever its kind.
    expect_refused(file.span(), header, "value coding 0 (none), where float32 is expected");
    header.kind = Kind::contribution;
    expect_refused(file.span(), header, "it is of kind 6", codings);
  }
}

// comm/plan/agreement.cpp writes and reads them: agreement_test.
TEST(Golden, AnAgreementIsNotOpened) {
  for (const std::string name : {"agreement", "agreement_refused"}) {
    Bytes file = golden_message(name);
    Header expected = gradient_header(25600000, 256000);
    expected.part = 0;
    for (const Kind kind :
         {Kind::gradient, Kind::agreement, Kind::contribution, Kind::sum, Kind::partial}) {
      expected.kind = kind;
      const Answer answer = try_open(file.span(), expected);
      EXPECT_EQ(answer.outcome, Outcome::usage_error);
      EXPECT_NE(answer.text.find("in the first call of a bucket"), std::string::npos)
          << answer.text;
    }
  }
}

TEST(Golden, EveryFileIsChecked) {
  std::set<std::string> known{"agreement", "agreement_refused", "support",
                              "support_everything_poison"},
      files;
  for (const Golden& g : golden()) known.insert(g.name);
  for (const auto& entry : std::filesystem::directory_iterator("golden")) {
    if (entry.path().extension() == ".bin") files.insert(entry.path().stem().string());
  }
  EXPECT_EQ(files, known);
}

}  // namespace
}  // namespace winnow::compress
