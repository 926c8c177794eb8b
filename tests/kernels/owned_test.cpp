// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/owned.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>
#include <winnow/error.hpp>

#include "tests/harness/kernel_place.hpp"
#include "tests/kernels/cases/owned_cases.hpp"
#include "tests/kernels/cases/owned_on_place.hpp"

namespace winnow::tests {
namespace {

using kernels::Partition;

OwnedBody owned_on(const Exec& exec) {
  return [&exec](const OwnedCase& c, std::vector<OwnedPiece>& pieces) {
    const Workspace::Scope scope(kernels::scratch_of(exec));
    OwnedOnPlace there(exec, c, pieces);
    there.move(c);
    for (std::size_t p = 0; p < pieces.size(); ++p) {
      pieces[p].elements = there.elements[p].download();
    }
    return there.not_finite.download()[0] == 0;
  };
}

TEST(Owned, EqualsTheDefinition) {
  for_each_body([](const Exec& exec) { expect_moves(owned_on(exec)); });
}

TEST(Owned, HalvesAreRounded) {
  for_each_body([](const Exec& exec) {
    expect_halves_written([&](const OwnedCase& c, HalfPieces& pieces, std::vector<OwnedPiece>& kept,
                              const kernels::RestKeeper& keeper) {
      const Workspace::Scope scope(kernels::scratch_of(exec));
      OwnedOnPlace there(exec, c, pieces);
      there.move(c);
      there.keep_rests(c, kept, keeper);
      for (std::size_t p = 0; p < pieces.halves.size(); ++p) {
        pieces.halves[p] = there.halves[p].download();
        kept[p].elements = there.elements[p].download();
      }
      return Said{there.not_finite.download()[0] != 0, there.too_large.download()[0] != 0};
    });
  });
}

/// What adds to elements, or takes them, has residuals before it.
TEST(Owned, OnlyTheSumIsWrittenToHalves) {
  const OwnedCase c{OwnedOp::add, Partition(1, 70), 0, {.index = {}, .value = {1, 2}}, 2};
  for_each_body([&](const Exec& exec) {
    const Workspace::Scope scope(kernels::scratch_of(exec));
    OwnedOnPlace there(exec, c, HalfPieces(ElementType::bf16, make_pieces(70)));
    EXPECT_THROW(kernels::add_owned(exec, there.job), UsageError);
    EXPECT_THROW(kernels::store_owned(exec, there.job), UsageError);
    EXPECT_THROW(kernels::take_owned(exec, there.job, there.value.span()), UsageError);
  });
}

TEST(Owned, WhatIsNotFinite) {
  for_each_body([](const Exec& exec) { expect_moves_of_infinities(owned_on(exec)); });
}

/// The jobs take several threads, chunks of a list and tiles of coded values. One value of the last
/// thread is not finite.
TEST(Owned, LargeJobsEqualTheDefinition) {
  for_each_body([](const Exec& exec) {
    const auto count = static_cast<std::uint32_t>(many(100'003));
    for (const std::uint32_t owners : {1U, 3U}) {
      const Partition partition(owners, count);
      const std::uint32_t owner = owners - 1;
      const auto locals = static_cast<std::uint32_t>(partition.local_count(owner));
      SumList list = make_list(Support::dense, locals, 5, Input::normal);
      const SumList coded = code(list, {&kernels::value_codings()[3], 64});
      list.value[list.value.size() - 5] = std::numeric_limits<float>::infinity();
      for (const OwnedOp op : {OwnedOp::add, OwnedOp::store, OwnedOp::write}) {
        for (SumList values : {list, coded}) {
          const std::uint64_t k = values.value.size();
          const auto pieces = make_pieces(count);
          expect_moved({op, partition, owner, values, k, 0.3F}, pieces, owned_on(exec));
          expect_moved({op, partition, owner, values, k - 100, 0.3F}, pieces, owned_on(exec));
          values.index.clear();
          expect_moved({op, partition, owner, values, k, 0.3F}, pieces, owned_on(exec));
        }
      }
    }
  });
}

/// Only the first local numbers have values, or none has.
TEST(Owned, MayHaveValuesForTheFirstNumbersAlone) {
  for_each_body([&](const Exec& exec) {
    for (const std::uint32_t owners : {1U, 3U}) {
      for (const std::size_t k : {0U, 1U, 70U, 1000U}) {
        const SumList values{.index = {}, .value = make_input(Input::normal, k, 3)};
        expect_moved({OwnedOp::add, Partition(owners, 4097), 0, values, k}, make_pieces(4097),
                     owned_on(exec));
      }
    }
  });
}

/// Takes a list, and all local numbers; gaps hold nothing. The output's old content does not
/// matter, and may be the values.
TEST(Owned, TakesElementsAndLeavesZeros) {
  for_each_body([](const Exec& exec) {
    for (const std::uint32_t count : {4097U, static_cast<std::uint32_t>(many(50'001))}) {
      for (const std::uint32_t owners : {1U, 3U}) {
        const Partition partition(owners, count);
        const auto locals = static_cast<std::uint32_t>(partition.local_count(owners - 1));
        for (const bool is_list : {false, true}) {
          SumList list = make_list(Support::dense, locals, 7, Input::normal);
          if (!is_list) list.index.clear();
          const OwnedCase c{OwnedOp::store, partition, owners - 1, list, list.value.size()};
          std::vector<OwnedPiece> left = make_pieces(count);
          left.back().elements.resize(left.back().elements.size() / 2);  // nothing stands behind
          const Workspace::Scope scope(kernels::scratch_of(exec));
          OwnedOnPlace there(exec, c, left);
          kernels::take_owned(exec, there.job, there.value.span());
          EXPECT_TRUE(same_bits(there.value.download(), take_by_definition(c, left)));
          for (std::size_t p = 0; p < left.size(); ++p) {
            EXPECT_TRUE(same_bits(there.elements[p].download(), left[p].elements));
          }
        }
      }
    }
  });
}

/// A list with gaps, whose entries name positions of pieces in order, and the entries of its runs.
struct Runs {
  OwnedCase room;
  SumList entries;
  std::vector<std::uint64_t> begins, counts;

  explicit Runs(std::uint32_t count) : room{OwnedOp::store, Partition(3, count), 1, {}, 0} {
    const auto locals = static_cast<std::uint32_t>(room.partition.local_count(1));
    entries = make_list(Support::random, locals, 1, Input::normal);
    std::size_t taken = 0;
    for (std::size_t i = 0; taken < entries.index.size(); ++i) {
      const std::size_t left = entries.index.size() - taken, most = i % 3 * 7;
      const std::size_t size = std::min(left, most);
      begins.push_back(room.values.index.size());
      counts.push_back(size);
      for (std::size_t j = 0; j < size + i % 2; ++j) {  // the last one may be none of the run's
        const bool is_entry = j < size;
        room.values.index.push_back(is_entry ? entries.index[taken + j] : 0);
        room.values.value.push_back(is_entry ? entries.value[taken + j] : 77);
      }
      taken += size;
    }
    room.count = room.values.value.size();
  }
};

TEST(Owned, AListMayHaveGapsBetweenRuns) {
  for (const std::uint32_t count : {65U, 4097U}) {
    const Runs runs(count);
    const std::vector<OwnedPiece> pieces = make_pieces(count);
    std::vector<OwnedPiece> expected = pieces;
    OwnedCase whole = runs.room;
    whole.values = runs.entries;
    whole.count = runs.entries.value.size();
    (void)move_by_definition(whole, expected);
    for_each_body([&](const Exec& exec) {
      const Workspace::Scope scope(kernels::scratch_of(exec));
      OwnedOnPlace there(exec, runs.room, pieces);
      OnPlace<std::uint64_t> counts(exec, runs.counts);
      std::vector<kernels::ListRun> list;
      for (std::size_t i = 0; i < runs.begins.size(); ++i) {
        list.push_back({.begin = runs.begins[i], .count = &counts.span()[i]});
      }
      there.job.runs = kernels::place(exec, std::span<const kernels::ListRun>(list));
      kernels::store_owned(exec, there.job);
      for (std::size_t p = 0; p < pieces.size(); ++p) {
        EXPECT_TRUE(same_bits(there.elements[p].download(), expected[p].elements)) << p;
      }
    });
  }
}

TEST(Owned, PiecesAreFilled) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for_each_body([&](const Exec& exec) {
    for (const std::size_t size : {std::size_t{0}, std::size_t{65}, many(9001)}) {
      const Workspace::Scope scope(kernels::scratch_of(exec));
      const std::vector<float> ones(size + 4, 1);
      OnPlace<float> first(exec, ones), second(exec, ones);
      const std::vector<kernels::PlacedSpan> spans = {
          {first.span().subspan(1, size), 64}, {second.span().subspan(2, size), 64 * (size + 2)}};
      for (const std::size_t pieces : {0U, 1U, 2U}) {
        kernels::fill_pieces(exec, kernels::place(exec, std::span(spans).first(pieces)), nan);
        const auto filled = [&](std::size_t at, bool is_filled) {
          std::vector<float> expected = ones;
          if (is_filled) std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(at), size, nan);
          return expected;
        };
        EXPECT_TRUE(same_bits(first.download(), filled(1, pieces > 0)));
        EXPECT_TRUE(same_bits(second.download(), filled(2, pieces > 1)));
      }
    }
  });
}

TEST(Owned, RefusesWrongSizes) {
  std::vector<float> values(100);
  const std::uint64_t count = 1;
  const kernels::OwnedJob job{.partition = Partition(2, 128), .values = {.value = values}};
  const auto refuses = [](const auto& call, const std::string& why) {
    EXPECT_THAT(call, testing::ThrowsMessage<UsageError>(testing::HasSubstr(why)));
  };
  refuses([&] { kernels::add_owned({}, job); }, "as many values as positions");
  kernels::OwnedJob wrong = job;
  wrong.partition = Partition(2, 300);
  EXPECT_NO_THROW(kernels::store_owned({}, wrong));
  refuses([&] { kernels::write_owned({}, wrong, {}); }, "a word for not_finite");
  refuses([&] { kernels::take_owned({}, wrong, std::span(values).first(99)); },
          "as many as the values");
  wrong.count = &count;
  refuses([&] { kernels::store_owned({}, wrong); }, "open of a list alone");
  const std::vector<std::uint32_t> index(99);
  wrong.values.index = index;
  refuses([&] { kernels::add_owned({}, wrong); }, "as many values as indices");
  wrong.owner = 2;
  refuses([&] { kernels::add_owned({}, wrong); }, "one of the partition's owners");
  const kernels::ListRun run{.begin = 0, .count = &count};
  wrong = {.partition = Partition(2, 300), .runs = {{&run, 1}, &run}};
  refuses([&] { kernels::add_owned({}, wrong); }, "only store_owned takes a list of runs");
  refuses([&] { kernels::write_owned({}, wrong, {}); }, "only store_owned");
  refuses([&] { kernels::take_owned({}, wrong, {}); }, "only store_owned");
  wrong.count = &count;
  refuses([&] { kernels::store_owned({}, wrong); }, "no other count");
}

}  // namespace
}  // namespace winnow::tests
