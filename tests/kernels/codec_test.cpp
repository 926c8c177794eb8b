// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>
#include <winnow/error.hpp>

#include "kernels/add_to.hpp"
#include "kernels/checksum.hpp"
#include "kernels/eliasfano.hpp"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

// The kernels that carry and add messages: the cpu body gives the reference's bits for every
// Highway target of this machine, for any number of threads, at awkward sizes and supports.

namespace winnow::kernels {
namespace {

constexpr Exec kReference{.place = Place::reference};

/// Runs `check` once for each Highway target that this machine has.
void on_every_target(const std::function<void()>& check) {
  hwy::SetSupportedTargetsForTest(0);
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    check();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

enum class Support { clustered, strided, dense, first, last, random };
constexpr Support kSupports[] = {Support::clustered, Support::strided, Support::dense,
                                 Support::first,     Support::last,    Support::random};

/// An ascending support in [0, count).
std::vector<std::uint32_t> make_support(Support support, std::uint32_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::uint32_t> index;
  const std::uint32_t some = count / 50 + (count > 0);
  for (std::uint32_t i = 0; i < count; ++i) {
    bool in = false;
    switch (support) {
      case Support::clustered:
        in = i / 97 % 41 == 3 + seed % 7;
        break;
      case Support::strided:
        in = i % 64 == 63 - seed % 3;
        break;
      case Support::dense:
        in = true;
        break;
      case Support::first:
        in = i < some;
        break;
      case Support::last:
        in = i >= count - some;
        break;
      case Support::random:
        in = random() % 100 == 0;
        break;
    }
    if (in) index.push_back(i);
  }
  return index;
}

std::string describe(Support support, std::uint64_t count) {
  return "support " + std::to_string(static_cast<int>(support)) + ", count " +
         std::to_string(count);
}

constexpr std::uint32_t kCounts[] = {0, 1, 31, 32, 33, 4095, 4097, (1 << 20) + 7};

// ---- add_to, put_back

struct Lists {
  std::vector<std::vector<std::uint32_t>> index;
  std::vector<std::vector<float>> value;
  std::vector<SparseView> views() const {
    std::vector<SparseView> views;
    for (std::size_t p = 0; p < index.size(); ++p) views.push_back({index[p], value[p]});
    return views;
  }
};

/// Values whose sums round, so that another order of addition gives other bits; denormals and
/// negative zeros among them.
float awkward_value(std::mt19937& random) {
  switch (random() % 8) {
    case 0:
      return -0.0f;
    case 1:
      return std::bit_cast<float>(static_cast<std::uint32_t>(random() % 0x7fffff));
    case 2:
      return 1e8f;
    case 3:
      return -1e8f;
    default:
      return static_cast<float>(random()) / 3e9f - 0.7f;
  }
}

Lists make_lists(std::size_t number, Support support, std::uint32_t count, std::uint32_t base) {
  Lists lists;
  for (std::uint32_t p = 0; p < number; ++p) {
    std::mt19937 random(p + 77);
    auto index = make_support(support, count, p);
    std::vector<float> value(index.size());
    for (float& v : value) v = awkward_value(random);
    for (std::uint32_t& i : index) i += base;
    lists.index.push_back(std::move(index));
    lists.value.push_back(std::move(value));
  }
  return lists;
}

std::vector<float> start_values(std::uint32_t count) {
  std::mt19937 random(5);
  std::vector<float> sum(count);
  for (float& s : sum) s = awkward_value(random);
  return sum;
}

/// Bits, not values: -0.0 is not 0.0 here.
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

TEST(AddTo, EqualsReference) {
  for (const std::uint32_t count : kCounts) {
    for (const Support support : kSupports) {
      for (const std::size_t number : {1u, 2u, 4u, 7u}) {
        // Seven dense lists of a million take seconds and no path that two do not.
        if (support == Support::dense && count > 1000000 && number > 2) continue;
        SCOPED_TRACE(describe(support, count) + ", lists " + std::to_string(number));
        const std::uint32_t base = count % 2 == 0 ? 0 : 4000000000u;
        const Lists lists = make_lists(number, support, count, base);
        for (const float factor : {1.0f, 1.0f / 3}) {
          auto expected = start_values(count);
          const bool finite = add_to(kReference, expected, base, lists.views(), factor);
          for (const int threads : {1, 2, 3}) {
            auto sum = start_values(count);
            EXPECT_EQ(add_to(Exec{.threads = threads}, sum, base, lists.views(), factor), finite);
            EXPECT_TRUE(same_bits(sum, expected)) << "threads " << threads;
          }
        }
      }
    }
  }
}

// More lists than a tile remembers the stretches of.
TEST(AddTo, EqualsReferenceForManyLists) {
  const std::uint32_t count = (1 << 17) + 5;
  const Lists lists = make_lists(70, Support::random, count, 9);
  auto expected = start_values(count), sum = expected;
  EXPECT_TRUE(add_to(kReference, expected, 9, lists.views(), 0.1f));
  EXPECT_TRUE(add_to(Exec{.threads = 2}, sum, 9, lists.views(), 0.1f));
  EXPECT_TRUE(same_bits(sum, expected));
}

// The formula of the declaration, element by element, without the reference body.
TEST(AddTo, IsTheDeclaredFormula) {
  for (const Place place : {Place::reference, Place::cpu}) {
    const std::uint32_t count = 40000;
    const Lists lists = make_lists(4, Support::random, count, 0);
    auto sum = start_values(count);
    auto expected = sum;
    add_to(Exec{.place = place}, sum, 0, lists.views(), 0.25f);
    for (std::uint32_t i = 0; i < count; ++i) {
      bool carried = false;
      for (std::size_t p = 0; p < 4; ++p) {
        const auto at = std::lower_bound(lists.index[p].begin(), lists.index[p].end(), i);
        if (at == lists.index[p].end() || *at != i) continue;
        expected[i] += lists.value[p][static_cast<std::size_t>(at - lists.index[p].begin())];
        carried = true;
      }
      if (carried) expected[i] *= 0.25f;
    }
    EXPECT_TRUE(same_bits(sum, expected));
  }
}

// Each position is a power of two times its rank's number: every sum has a closed form.
TEST(AddTo, HasClosedForm) {
  const std::uint32_t count = 5000;
  for (const std::uint32_t ranks : {1u, 2u, 4u, 7u}) {
    Lists lists;
    for (std::uint32_t p = 0; p < ranks; ++p) {
      lists.index.emplace_back();
      lists.value.emplace_back();
      for (std::uint32_t i = p; i < count; i += p + 1) {
        lists.index[p].push_back(i);
        lists.value[p].push_back(static_cast<float>(i * (p + 1)));
      }
    }
    std::vector<float> sum(count);
    EXPECT_TRUE(add_to(Exec{.threads = 2}, sum, 0, lists.views(), 0.5f));
    for (std::uint32_t i = 0; i < count; ++i) {
      std::uint32_t weight = 0;
      for (std::uint32_t p = 0; p < ranks; ++p) {
        weight += i >= p && (i - p) % (p + 1) == 0 ? p + 1 : 0;
      }
      ASSERT_EQ(sum[i], static_cast<float>(i * weight) / 2) << i;
    }
  }
}

TEST(AddTo, SaysWhetherSumsAreFinite) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kMax = std::numeric_limits<float>::max();
  struct Case {
    float start, value;
    float factor;
    bool finite;
  };
  const Case cases[] = {{0, kInf, 1, false},       {0, -kInf, 1, false},   {0, kNan, 1, false},
                        {kMax, kMax, 1, false},    {kInf, 1, 1, false},    {kInf, -kInf, 1, false},
                        {kMax, 0, 1, true},        {-kMax, kMax, 1, true}, {kMax, 0, 2, false},
                        {kMax, kMax, 0.5f, false}, {0, kInf, 0, false},    {1, 1, 0, true}};
  const std::uint32_t count = 70000;
  for (const Case& c : cases) {
    for (const std::size_t number : {1u, 2u}) {
      for (const std::uint32_t place : {0u, 40000u, count - 1}) {
        for (const Place body : {Place::reference, Place::cpu}) {
          SCOPED_TRACE(testing::Message() << c.start << " + " << c.value << ", times " << c.factor
                                          << " at " << place << ", lists " << number);
          std::vector<float> sum(count);
          sum[place] = c.start;
          Lists lists = make_lists(number, Support::dense, count, 0);
          for (auto& value : lists.value) std::fill(value.begin(), value.end(), 0.0f);
          lists.value[0][place] = c.value;
          const Exec exec{.place = body, .threads = 3};
          EXPECT_EQ(add_to(exec, sum, 0, lists.views(), c.factor), c.finite);
        }
      }
    }
  }
}

// What no list carries is neither written nor looked at.
TEST(AddTo, LeavesOtherPositionsAlone) {
  std::vector<float> sum(100, std::numeric_limits<float>::quiet_NaN());
  sum[50] = 1;
  const std::vector<std::uint32_t> index{50};
  const std::vector<float> value{2};
  const std::vector<SparseView> lists{{index, value}, {index, value}};
  EXPECT_TRUE(add_to(Exec{}, sum, 0, lists, 3));
  EXPECT_EQ(sum[50], 15);
  EXPECT_EQ(std::count_if(sum.begin(), sum.end(), [](float x) { return std::isnan(x); }), 99);
  EXPECT_TRUE(add_to(Exec{}, sum, 0, {}, 3));
  EXPECT_EQ(sum[50], 15);
}

TEST(PutBack, EqualsReference) {
  for (const std::uint32_t count : kCounts) {
    for (const Support support : kSupports) {
      SCOPED_TRACE(describe(support, count));
      const Lists lists = make_lists(1, support, count, 1000);
      auto expected = start_values(count);
      put_back(kReference, expected, 1000, lists.views()[0]);
      for (const int threads : {1, 2, 3}) {
        auto sum = start_values(count);
        put_back(Exec{.threads = threads}, sum, 1000, lists.views()[0]);
        EXPECT_TRUE(same_bits(sum, expected)) << "threads " << threads;
      }
    }
  }
}

#if defined(__SSE2__)
TEST(AddTo, KeepsDenormalsAndTheCallersMode) {
  constexpr unsigned kFlushes = 0x8040;
  const std::uint32_t count = 40000;
  const float denormal = std::numeric_limits<float>::denorm_min();
  for (const Place place : {Place::reference, Place::cpu}) {
    for (const int threads : {1, 2}) {
      Lists lists = make_lists(1, Support::dense, count, 0);
      std::fill(lists.value[0].begin(), lists.value[0].end(), denormal);
      std::vector<float> sum(count, denormal);
      const unsigned before = _mm_getcsr();
      _mm_setcsr(before | kFlushes);
      add_to(Exec{.place = place, .threads = threads}, sum, 0, lists.views(), 1);
      const unsigned after = _mm_getcsr();
      _mm_setcsr(before);
      EXPECT_EQ(after & kFlushes, kFlushes);
      EXPECT_EQ(std::count(sum.begin(), sum.end(), 2 * denormal), count);
    }
  }
}
#endif

// ---- eliasfano

std::vector<std::byte> encode(const Exec& exec, std::uint64_t count,
                              std::span<const std::uint32_t> index) {
  // Whatever was in the buffer before must not show.
  std::vector<std::byte> out(eliasfano_shape(count, index.size()).bytes(), std::byte{0xa5});
  eliasfano_encode(exec, count, index, out);
  return out;
}

void check_round_trip(std::uint64_t count, const std::vector<std::uint32_t>& index) {
  const auto expected = encode(kReference, count, index);
  std::vector<std::uint32_t> decoded(index.size(), 7);
  ASSERT_TRUE(eliasfano_decode(kReference, count, expected, decoded));
  ASSERT_EQ(decoded, index);
  on_every_target([&] {
    EXPECT_EQ(encode(Exec{}, count, index), expected);
    std::fill(decoded.begin(), decoded.end(), 7u);
    EXPECT_TRUE(eliasfano_decode(Exec{}, count, expected, decoded));
    EXPECT_EQ(decoded, index);
  });
}

TEST(EliasFano, RoundTripsAndEqualsReference) {
  for (const std::uint32_t count : kCounts) {
    for (const Support support : kSupports) {
      SCOPED_TRACE(describe(support, count));
      check_round_trip(count, make_support(support, count, 1));
    }
  }
}

// Every number of low bits that there is, with k around each group size of the fast body.
TEST(EliasFano, RoundTripsEveryNumberOfLowBits) {
  std::vector<bool> seen(32);
  for (std::uint32_t spacing = 0; spacing < 32; ++spacing) {
    for (std::uint64_t k = 1; k < 100; k += k < 20 ? 1 : 13) {
      const std::uint64_t count = std::min((k << spacing) + 1, (std::uint64_t{1} << 32) - 1);
      std::mt19937_64 random(k);
      std::vector<std::uint32_t> index;
      for (std::uint64_t i = 0; i < k; ++i) {
        const std::uint64_t begin = count / k * i, width = count / k;
        index.push_back(static_cast<std::uint32_t>(begin + random() % width));
      }
      SCOPED_TRACE(describe(Support::random, count));
      seen[eliasfano_shape(count, k).low_bits] = true;
      check_round_trip(count, index);
    }
  }
  // With 27 low bits the high part of one index below 2^32 is one word: more never save any.
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 28);
}

TEST(EliasFano, CarriesTheLargestUniverse) {
  const std::uint64_t count = (std::uint64_t{1} << 32) - 1;
  const auto top = static_cast<std::uint32_t>(count - 1);
  check_round_trip(count, {});
  check_round_trip(count, {0});
  check_round_trip(count, {top});
  check_round_trip(count, {0, 1, top - 1, top});
  std::vector<std::uint32_t> spread;
  for (std::uint32_t i = 0; i < 5000; ++i) spread.push_back(i * 858993u);
  check_round_trip(count, spread);
}

TEST(EliasFano, ShapeIsSmallestAndNearEntropy) {
  for (const std::uint64_t count : {1ull, 100ull, 4097ull, 25600000ull, 4294967295ull}) {
    for (const std::uint64_t k :
         {std::uint64_t{0}, std::uint64_t{1}, count / 1000, count / 100, count / 2, count}) {
      const EliasFanoShape shape = eliasfano_shape(count, k);
      for (std::uint32_t l = 0; l < 32; ++l) {
        const std::uint64_t bytes = (k * l + 63) / 64 * 8 + (k + (count >> l) + 1 + 63) / 64 * 8;
        EXPECT_LE(shape.bytes(), bytes);
        if (l < shape.low_bits) {
          EXPECT_LT(shape.bytes(), bytes) << "the smallest l wins";
        }
      }
    }
  }
  for (const double density : {0.01, 0.001}) {
    const double n = 25600000, k = std::ceil(density * n);
    const double entropy =
        (std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1)) / std::log(2.0);
    const auto bytes = eliasfano_shape(25600000, static_cast<std::uint64_t>(k)).bytes();
    EXPECT_LE(8 * static_cast<double>(bytes), 1.10 * entropy) << density;
    EXPECT_GE(8 * static_cast<double>(bytes), entropy) << density;
  }
  EXPECT_THROW(eliasfano_shape(std::uint64_t{1} << 33, 1), UsageError);
  EXPECT_THROW(eliasfano_shape(5, 6), UsageError);
}

/// Decodes changed bytes: both bodies agree, and what they accept encodes to the same bytes again.
void check_decode(std::uint64_t count, std::size_t k, const std::vector<std::byte>& bytes) {
  std::vector<std::uint32_t> index(k);
  const bool sound = eliasfano_decode(kReference, count, bytes, index);
  if (sound) {
    ASSERT_EQ(encode(kReference, count, index), bytes);
  }
  std::vector<std::uint32_t> again(k);
  ASSERT_EQ(eliasfano_decode(Exec{}, count, bytes, again), sound);
  if (sound) {
    ASSERT_EQ(again, index);
  }
}

TEST(EliasFano, AcceptsOnlyWhatItWrites) {
  struct Case {
    std::uint64_t count;
    std::vector<std::uint32_t> index;
  };
  std::vector<Case> cases{{0, {}},    {1, {}},        {1, {0}},         {5, {1, 3}},
                          {1000, {}}, {1 << 30, {9}}, {4294967295, {9}}};
  for (const Support support : kSupports) cases.push_back({3000, make_support(support, 3000, 2)});
  on_every_target([&] {
    for (const Case& c : cases) {
      SCOPED_TRACE(describe(Support::random, c.count) + ", k " + std::to_string(c.index.size()));
      const auto sound = encode(kReference, c.count, c.index);
      for (std::size_t bit = 0; bit < 8 * sound.size(); ++bit) {
        auto bytes = sound;
        bytes[bit / 8] ^= std::byte{1} << (bit % 8);
        check_decode(c.count, c.index.size(), bytes);
      }
      std::mt19937 random(3);
      for (int trial = 0; trial < 2000; ++trial) {  // the right number of ones, moved
        auto bytes = sound;
        for (int swap = 0; swap < 2 && !bytes.empty(); ++swap) {
          std::swap(bytes[random() % bytes.size()], bytes[random() % bytes.size()]);
        }
        check_decode(c.count, c.index.size(), bytes);
      }
    }
  });
}

TEST(EliasFano, RefusesDisorderRepeatsAndOverflow) {
  ASSERT_EQ(eliasfano_shape(40, 4).low_bits, 0u);
  ASSERT_EQ(eliasfano_shape(400, 4).low_bits, 3u);
  on_every_target([&] {
    const auto refuses = [&](std::uint64_t universe, std::vector<std::uint32_t> index,
                             std::uint64_t written_as) {
      // Written for a larger universe of the same shape, or with indices that seal never gets.
      std::vector<std::byte> bytes = encode(kReference, written_as, index);
      std::vector<std::uint32_t> decoded(index.size());
      ASSERT_EQ(bytes.size(), eliasfano_shape(universe, index.size()).bytes());
      EXPECT_FALSE(eliasfano_decode(kReference, universe, bytes, decoded));
      EXPECT_FALSE(eliasfano_decode(Exec{}, universe, bytes, decoded));
    };
    refuses(40, {1, 5, 5, 7}, 40);
    refuses(400, {64, 70, 70, 300}, 400);
    refuses(400, {64, 71, 70, 300}, 400);
    refuses(399, {1, 2, 3, 399}, 400);
    refuses(39, {1, 2, 3, 39}, 40);
    std::vector<std::uint32_t> three(3), five(5);
    const auto four = encode(kReference, 40, std::vector<std::uint32_t>{1, 2, 3, 4});
    EXPECT_FALSE(eliasfano_decode(Exec{}, 40, four, three));
    EXPECT_FALSE(eliasfano_decode(Exec{}, 40, four, five));
    EXPECT_FALSE(eliasfano_decode(Exec{}, 40, std::span(four).first(four.size() - 8), five));
  });
}

// ---- checksum

TEST(Checksum, EqualsReference) {
  std::mt19937 random(1);
  std::vector<std::uint32_t> words((1 << 21) + 7);
  for (std::uint32_t& word : words) word = static_cast<std::uint32_t>(random());
  words[3] = 0xffffffff;
  on_every_target([&] {
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{31}, std::size_t{32}, std::size_t{33},
          std::size_t{4095}, std::size_t{4097}, words.size() - 1}) {
      for (const std::size_t first : {0u, 1u}) {  // off the alignment of vectors
        const auto bytes = std::as_bytes(std::span(words).subspan(first, count));
        const std::uint64_t expected = checksum(kReference, bytes);
        for (const int threads : {1, 2, 3}) {
          EXPECT_EQ(checksum(Exec{.threads = threads}, bytes), expected)
              << count << " words, threads " << threads;
        }
      }
    }
  });
}

TEST(Checksum, IsTheDeclaredFormula) {
  const std::uint32_t words[] = {5, 0, 0xffffffff, 7};
  const std::uint64_t expected = 5 + 0xffffffffull * 5 + 7 * 7;
  for (const Place place : {Place::reference, Place::cpu}) {
    EXPECT_EQ(checksum(Exec{.place = place}, std::as_bytes(std::span(words))), expected);
    EXPECT_THROW(checksum(Exec{.place = place}, std::as_bytes(std::span(words)).first(6)),
                 UsageError);
  }
}

TEST(Checksum, ChangesWithEveryBitAndEveryExchange) {
  std::vector<std::uint32_t> words(150);
  std::mt19937 random(2);
  for (std::uint32_t& word : words) word = static_cast<std::uint32_t>(random());
  const auto sum = [&] { return checksum(Exec{}, std::as_bytes(std::span(words))); };
  const std::uint64_t before = sum();
  for (std::size_t bit = 0; bit < 32 * words.size(); ++bit) {
    words[bit / 32] ^= 1u << (bit % 32);
    EXPECT_NE(sum(), before);
    words[bit / 32] ^= 1u << (bit % 32);
  }
  for (std::size_t i = 1; i < words.size(); ++i) {
    std::swap(words[0], words[i]);
    EXPECT_NE(sum(), before);
    std::swap(words[0], words[i]);
  }
}

}  // namespace
}  // namespace winnow::kernels
