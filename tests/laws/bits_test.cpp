// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Law 3 over time: every case gives the bits pinned in golden/bits.txt, in every place. A change
// that should change no bits leaves that file alone.
//
// If a change of bits is intended, rewrite the file, in the folder `tests`:
//
//   BITS_UPDATE=1 ../build/tests/bits_test
//
// A test filter then changes only the lines of its tests. BITS_FILE names another file than
// golden/bits.txt. A line is a case's name and three digests: of its results and residuals, of its
// messages, and of their order. All places must agree on the first two. The order is that of
// buckets in host memory: on a device fewer parts are under way at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "compress/compressor.hpp"
#include "tests/harness/bucket_place.hpp"
#include "tests/harness/schedules.hpp"
#include "tests/laws/bits_case.hpp"

namespace winnow::tests {
namespace {

using Digests = std::map<std::string, Bits>;  // by the name of a case

std::string file_name() {
  const char* given = std::getenv("BITS_FILE");
  return given != nullptr ? given : "golden/bits.txt";
}

bool is_update() {
  return std::getenv("BITS_UPDATE") != nullptr;
}

std::string hex(std::uint64_t number) {
  std::array<char, 17> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), number, 16);
  const std::string digits(text.data(), end);
  return std::string(16 - digits.size(), '0') + digits;
}

std::string text_of(const Bits& bits) {
  return hex(bits.state) + " " + hex(bits.messages) + " " + hex(bits.order);
}

Digests read_file() {
  Digests digests;
  std::ifstream file(file_name());
  EXPECT_TRUE(file || is_update()) << "no file " << file_name();
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.starts_with('#')) continue;
    std::istringstream words(line);
    std::string name;
    Bits bits;
    words >> name >> std::hex >> bits.state >> bits.messages >> bits.order;
    EXPECT_TRUE(words && words.eof()) << file_name() << ": " << line;
    EXPECT_TRUE(digests.emplace(name, bits).second) << file_name() << " has " << name << " twice";
  }
  return digests;
}

const Digests& pinned() {
  static const Digests kPinned = read_file();
  return kPinned;
}

/// A test's name has only letters, digits and '_'.
std::string test_name(const testing::TestParamInfo<BitsCase>& test) {
  std::string name = test.param.name;
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

class BitsOf : public testing::TestWithParam<BitsCase> {
 protected:
  // NOLINTNEXTLINE(readability-identifier-naming): the library's name
  static void TearDownTestSuite() {
    if (!is_update()) return;
    std::ofstream file(file_name());
    file << "# What tests/laws/bits_test.cpp pins: case, digests of results and residuals, of "
            "messages, of their order\n";
    for (const BitsCase& the_case : bits_cases()) {
      const auto found = digests().find(the_case.name);
      if (found != digests().end()) file << the_case.name << ' ' << text_of(found->second) << '\n';
    }
    EXPECT_TRUE(file.flush()) << "cannot write " << file_name();
  }

  /// The new content of the file: the old content with this run's results.
  static Digests& digests() {
    static Digests all = pinned();
    return all;
  }

  static void expect_pinned(const BitsCase& the_case, const Bits& bits) {
    const auto found = pinned().find(the_case.name);
    ASSERT_TRUE(found != pinned().end()) << file_name() << " lacks the line\n"
                                         << the_case.name << ' ' << text_of(bits);
    EXPECT_EQ(hex(bits.state), hex(found->second.state))
        << "results or residuals of " << the_case.name;
    const bool on_device = bucket_place().place == Place::cuda;
    // A coding may turn non-finite values into anything; such messages carry the poison bit.
    if (!on_device || the_case.event == Event::none) {
      EXPECT_EQ(hex(bits.messages), hex(found->second.messages)) << "messages of " << the_case.name;
    }
    if (on_device) return;
    EXPECT_EQ(hex(bits.order), hex(found->second.order))
        << "order of messages of " << the_case.name;
  }
};

TEST_P(BitsOf, ThisCaseAreThePinnedOnes) {
  const Bits bits = bits_of(GetParam(), 1);
  if (is_update()) {
    digests()[GetParam().name] = bits;
  } else {
    expect_pinned(GetParam(), bits);
  }
}
INSTANTIATE_TEST_SUITE_P(Laws, BitsOf, testing::ValuesIn(bits_cases()), test_name);

class BitsOfThreads : public BitsOf {
 protected:
  // NOLINTNEXTLINE(readability-identifier-naming): the library's name
  static void TearDownTestSuite() {}
};

std::vector<BitsCase> long_cases() {
  std::vector<BitsCase> cases;
  std::ranges::copy_if(bits_cases(), std::back_inserter(cases),
                       [](const BitsCase& c) { return c.name.ends_with("+long"); });
  return cases;
}

TEST_P(BitsOfThreads, AreThoseOfOne) {
  if (is_update()) GTEST_SKIP() << "the file is written by one thread";
  expect_pinned(GetParam(), bits_of(GetParam(), 3));
}
INSTANTIATE_TEST_SUITE_P(Laws, BitsOfThreads, testing::ValuesIn(long_cases()), test_name);

TEST(BitsFile, NamesNoOtherCase) {
  if (is_update()) GTEST_SKIP() << "the file is written without them";
  for (const auto& line : pinned()) {
    EXPECT_TRUE(std::ranges::find(bits_cases(), line.first, &BitsCase::name) != bits_cases().end())
        << "no case is named " << line.first;
  }
}

TEST(BitsFile, HasEachValueCodingAndSchedule) {
  std::set<std::string_view> names;
  for (const BitsCase& the_case : bits_cases()) {
    const auto compressor = compress::make_compressor(the_case.options.compressor);
    names.insert({compressor->codings().value.coding->name, the_case.options.schedule});
  }
  for (const auto& coding : kernels::value_codings())
    EXPECT_TRUE(names.contains(coding.name)) << coding.name;
  for (const auto& schedule : schedule_names()) EXPECT_TRUE(names.contains(schedule)) << schedule;
}

}  // namespace
}  // namespace winnow::tests
