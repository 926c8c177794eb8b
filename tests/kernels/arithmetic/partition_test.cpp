// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/arithmetic/partition.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/harness/sanitized.hpp"

namespace winnow::tests {
namespace {

using kernels::Partition;

constexpr std::uint32_t kOwners[] = {1, 2, 3, 4, 7, 64};
constexpr std::uint64_t kCounts[] = {0, 1, 63, 64, 65, 128, 447, 448, 449, 4096, 100'001};

TEST(Partition, EveryPositionHasOneOwnerWhoNumbersItInOrder) {
  for (const std::uint32_t owners : kOwners) {
    for (const std::uint64_t count : kCounts) {
      const Partition partition(owners, count);
      std::vector<std::uint64_t> next(owners);
      std::uint64_t wrong = 0;
      for (std::uint64_t p = 0; p < count; ++p) {
        const std::uint32_t owner = partition.owner_of_unit(p / Partition::kUnit);
        ASSERT_LT(owner, owners);
        for (std::uint32_t o = 0; o < owners && p % 31 == 0; ++o) {
          wrong += partition.local_before(o, p) != next[o];
        }
        wrong += partition.local(p) != next[owner]++;
        wrong += partition.position(owner, partition.local(p)) != p;
      }
      EXPECT_EQ(wrong, 0u) << owners << " owners of " << count;
      for (std::uint32_t o = 0; o < owners; ++o) {
        EXPECT_EQ(next[o], partition.local_count(o)) << o << " of " << owners << ", " << count;
      }
    }
  }
}

// The closed form is part of the message format: tests/golden/make_golden.py prints these rows,
// computed from docs/message_format.md. They never change.
TEST(Partition, IsTheFormulaOfTheFormat) {
  struct Row {
    std::uint64_t owners, count, position, owner, local;
  };
  constexpr Row kRows[] = {
      {1, 1000, 999, 0, 999},
      {2, 1000, 0, 0, 0},
      {2, 1000, 64, 1, 0},
      {2, 1000, 500, 0, 244},
      {2, 1000, 999, 1, 487},
      {3, 100000, 191, 2, 63},
      {3, 100000, 192, 0, 64},
      {3, 100000, 12345, 2, 4153},
      {3, 100000, 99999, 2, 33311},
      {4, 1048576, 1048575, 0, 262143},
      {7, 100001, 448, 2, 64},
      {7, 100001, 31416, 6, 4536},
      {7, 100001, 100000, 6, 14304},
      {64, 1000000000, 123456789, 42, 1928981},
      {1000, 1099511627776, 1099511627775, 242, 1099511679},
      {5, 1125899906842624, 1125899906842623, 0, 225179981368575},
      {2, 1125899906842624, 549755813952, 1, 274877906944},
      {65536, 1099511627776, 987654321012, 53614, 15070452},
  };
  for (const Row& row : kRows) {
    SCOPED_TRACE(testing::Message() << "position " << row.position << " of " << row.owners);
    const Partition partition(static_cast<std::uint32_t>(row.owners), row.count);
    EXPECT_EQ(partition.owner_of_unit(row.position / Partition::kUnit), row.owner);
    EXPECT_EQ(partition.local(row.position), row.local);
    EXPECT_EQ(partition.position(static_cast<std::uint32_t>(row.owner), row.local), row.position);
  }
}

TEST(Partition, AWholeGroupGivesEachOwnerOneUnit) {
  for (const std::uint32_t owners : kOwners) {
    const Partition partition(owners, std::uint64_t{1000} * owners * Partition::kUnit);
    for (std::uint64_t group = 0; group < partition.groups(); ++group) {
      std::vector<int> units(owners);
      for (std::uint32_t i = 0; i < owners; ++i) {
        const std::uint32_t owner = partition.owner_of_unit(group * owners + i);
        ++units[owner];
        EXPECT_EQ(partition.unit_of(owner, group), group * owners + i);
      }
      EXPECT_EQ(std::count(units.begin(), units.end(), 1), static_cast<int>(owners));
    }
  }
}

TEST(Partition, OneOwnerHasAllInPlace) {
  const Partition partition(1, 1000);
  EXPECT_EQ(partition.local_count(0), 1000u);
  for (std::uint64_t p = 0; p < 1000; ++p) EXPECT_EQ(partition.local(p), p);
}

TEST(Partition, WorksBeyond32Bits) {
  const std::uint64_t count = (std::uint64_t{1} << 40) + 12345;
  for (const std::uint32_t owners : kOwners) {
    const Partition partition(owners, count);
    std::uint64_t sum = 0;
    for (std::uint32_t o = 0; o < owners; ++o) {
      const std::uint64_t n = partition.local_count(o), last = partition.position(o, n - 1);
      sum += n;
      EXPECT_LT(last, count);
      EXPECT_EQ(partition.owner_of_unit(last / Partition::kUnit), o);
      EXPECT_EQ(partition.local(last), n - 1);
    }
    EXPECT_EQ(sum, count);
  }
}

/// The units that a support occupies, in a matrix of rows of some units.
struct Shape {
  std::string name;
  std::vector<std::uint64_t> units;
};

/// The rows of an embedding: a power law draws the words, and most of them occur once.
Shape power_law_rows(std::uint64_t width, std::uint64_t size) {
  const std::uint64_t whole_rows = size / width;
  const double words = 40.0 * static_cast<double>(whole_rows);
  std::mt19937_64 random(7);
  std::set<std::uint64_t> rows;
  while (rows.size() * width < size) {
    const double uniform = std::ldexp(static_cast<double>(random() >> 11), -53);
    rows.insert(static_cast<std::uint64_t>(std::pow(words, uniform)) - 1);
  }
  Shape shape{"power-law rows of " + std::to_string(width), {}};
  for (const std::uint64_t row : rows) {
    for (std::uint64_t i = 0; i < width; ++i) shape.units.push_back(row * width + i);
  }
  return shape;
}

/// Supports of `size` units, in several shapes.
std::vector<Shape> shapes(std::uint64_t size) {
  std::vector<Shape> all;
  const auto add = [&](const std::string& name, auto unit) {
    Shape& shape = all.emplace_back(Shape{name, std::vector<std::uint64_t>(size)});
    for (std::uint64_t i = 0; i < size; ++i) shape.units[i] = unit(i);
  };
  for (const std::uint64_t stride : {2u, 3u, 4u, 7u, 8u, 12u, 16u, 28u, 64u, 100u}) {
    add("stride of " + std::to_string(stride), [=](std::uint64_t i) { return i * stride; });
  }
  add("dense block", [](std::uint64_t i) { return 177'777 + i; });
  for (const std::uint64_t width : {12u, 16u, 48u, 64u}) {
    const std::string of = " of rows of " + std::to_string(width);
    add("hot column" + of, [=](std::uint64_t i) { return i * width + 5; });
    const std::uint64_t hot = width / 4;
    add("hot columns" + of, [=](std::uint64_t i) { return i / hot * width + i % hot; });
    add("hot ones" + of, [=](std::uint64_t i) { return (i / width * 16 + 3) * width + i % width; });
  }
  for (const std::uint64_t width : {1u, 3u, 4u, 12u, 16u}) {
    all.push_back(power_law_rows(width, size));
  }
  return all;
}

// Owners share units as well as a random draw of owners does, or better: an owner that expects n
// units gets at most four standard deviations more, which is 1.1 n for 1600 units and 1.05 n for
// 6400.
TEST(Partition, OwnersShareSupportsOfAnyShape) {
  for (const std::uint32_t owners : {2u, 3u, 4u, 5u, 7u, 8u, 12u, 16u, 31u, 32u, 48u, 64u}) {
    for (const std::uint64_t expected : {1600u, 6400u}) {
      if (expected > 1600 && (kSanitized || owners > 8)) continue;
      for (const Shape& shape : shapes(expected * owners)) {
        const std::uint64_t positions = (shape.units.back() + 1) * Partition::kUnit;
        const Partition partition(owners, positions);
        std::vector<std::uint64_t> units(owners);
        for (const std::uint64_t unit : shape.units) ++units[partition.owner_of_unit(unit)];
        const auto mean = static_cast<double>(shape.units.size()) / owners;
        const auto most = static_cast<double>(std::ranges::max(units));
        EXPECT_LE(most, mean + 4 * std::sqrt(mean)) << owners << " owners, " << shape.name;
      }
    }
  }
}

}  // namespace
}  // namespace winnow::tests
