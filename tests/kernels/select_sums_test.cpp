// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// An owner's work on its positions: it adds lists to acc in rank order, and then selects elements
// or keeps those that reach a bound.
#include "kernels/select_sums.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <ranges>
#include <vector>
#include <winnow/error.hpp>

#include "lab/reference/place.hpp"
#include "tests/harness/kernel_place.hpp"
#include "tests/kernels/cases/sums_cases.hpp"
#include "tests/kernels/cases/terms_on_place.hpp"
#include "tests/kernels/inputs.hpp"
#include "tests/kernels/value_formats.hpp"

namespace winnow::tests {
namespace {

using kernels::KeepSumsJob;
using kernels::SelectBound;
using kernels::SelectResult;
using kernels::SelectSumsJob;
using kernels::Term;

constexpr std::size_t kBefore = 3;  // elements already in the list of keep_sums
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// The carried bound if it is for k.
float bound_for(const SelectBound& bound, std::size_t k) {
  if (bound.k == k) return bound.bound;
  return kInfinity;
}

/// The lists that the other ranks send for a job; the owner's list is empty.
std::vector<SumList> lists_of(const SumsJob& job) {
  std::vector<SumList> lists(job.index.size());
  for (std::size_t r = 0; r < lists.size(); ++r) {
    if (r != job.self) lists[r] = {job.index[r], job.value[r]};
  }
  return lists;
}

/// The list of own elements in the memory of a place, and room for what is selected.
struct Selection {
  OnPlace<std::uint32_t> own_index, index;
  OnPlace<float> own_value, value;
  OnPlace<SelectResult> accumulated, result;
  OnPlace<SelectBound> state;

  Selection(const Exec& exec, const OwnList& list, std::size_t k, const SelectBound& bound)
      : own_index(exec, list.index),
        index(exec, k),
        own_value(exec, list.value),
        value(exec, k),
        accumulated(exec, std::vector{list.said()}),
        result(exec, 1),
        state(exec, std::vector{bound}) {}
};

/// A job in the memory of a place.
class SumsOnPlace {
 public:
  SumsOnPlace(const Exec& exec, const SumsJob& job) : SumsOnPlace(exec, job, lists_of(job)) {}
  SumsOnPlace(const Exec& exec, const SumsJob& job, std::span<const SumList> lists)
      : exec_(exec),
        job_(job),
        terms_(exec, lists),
        residual_(exec, job.residual),
        touched_(exec, job.count()),
        sum_(exec, job.count()),
        touched_count_(exec, std::vector<std::uint64_t>{77}) {}

  /// Says that terms name `most` elements, and leaves room for so many.
  void say(std::size_t most) { most_ = most; }

  /// `listed_by` is the bound of the pass that made the list, `room` the list's room.
  SumsOutcome select(std::size_t k, SelectBound& bound, float listed_by, std::size_t room) {
    Selection selection(exec_, OwnList(job_, listed_by, room), k, bound);
    const SelectSumsJob one = job(selection);
    kernels::select_sums(exec_, {&one, 1});
    return download(selection, bound);
  }
  /// Selects by the carried bound if it is for this k.
  SumsOutcome select(std::size_t k, SelectBound& bound, std::size_t room = kAllRoom) {
    return select(k, bound, bound_for(bound, k), room);
  }

  SumsOutcome keep(float bound) {
    const std::size_t count = job_.count(), places = count + kBefore;
    const OwnList list(job_, bound, count);
    OnPlace<std::uint32_t> own_index(exec_, list.index);
    OnPlace<std::uint32_t> index(exec_, std::vector<std::uint32_t>(places, 77));
    OnPlace<float> own_value(exec_, list.value), value(exec_, std::vector<float>(places, 77));
    OnPlace<SelectResult> accumulated(exec_, std::vector{list.said()}), result(exec_, 1);
    OnPlace<std::uint64_t> kept(exec_, std::vector<std::uint64_t>{kBefore});
    kernels::keep_sums(exec_, {.owned = owned(own_index.span(), own_value.span(), count),
                               .accumulated = accumulated.data(),
                               .terms = {terms_.span()},
                               .out = {index.span(), value.span(), touched_.span(), sum_.span()},
                               .kept = kept.data(),
                               .touched_count = touched_count_.data(),
                               .result = result.data()});
    SumsOutcome out(job_, 0);
    out.result = result.download()[0];
    take_touched(out, count);
    const std::uint64_t end = kept.download()[0];
    EXPECT_EQ(end, kBefore + out.result.candidates);
    if (end > places) return out;
    for (const std::uint32_t i : index.download()) out.index.push_back(i);
    for (const float x : value.download()) out.value.push_back(x);
    for (std::size_t j = 0; j < kBefore; ++j) {
      EXPECT_EQ(out.index[j], 77U);
      EXPECT_EQ(out.value[j], 77);
    }
    const auto from = static_cast<std::ptrdiff_t>(kBefore), to = static_cast<std::ptrdiff_t>(end);
    if (out.result.finite) {
      EXPECT_TRUE(
          std::all_of(out.value.begin() + to, out.value.end(), [](float x) { return x == 77; }));
    }
    out.index = {out.index.begin() + from, out.index.begin() + to};
    out.value = {out.value.begin() + from, out.value.begin() + to};
    return out;
  }

  SelectSumsJob job(Selection& s) {
    const std::size_t most = most_;
    return {.owned = owned(s.own_index.span(), s.own_value.span(), most),
            .accumulated = s.accumulated.data(),
            .terms = {terms_.span()},
            .out = {s.index.span(), s.value.span(), touched_.span().first(most),
                    sum_.span().first(most)},
            .touched_count = touched_count_.data(),
            .state = s.state.data(),
            .result = s.result.data()};
  }
  SumsOutcome download(Selection& s, SelectBound& bound) {
    bound = s.state.download()[0];
    SumsOutcome out(job_, 0);
    out.index = s.index.download();
    out.value = s.value.download();
    out.result = s.result.download()[0];
    take_touched(out, most_);
    return out;
  }

  std::vector<float> residual() { return residual_.download(); }
  /// Whether the lists of touched sums are as they were from entry `room` on.
  bool nothing_behind(std::size_t room) {
    const auto is_zero = [](const auto& x) { return x == 0; };
    return std::ranges::all_of(touched_.download() | std::views::drop(room), is_zero) &&
           std::ranges::all_of(sum_.download() | std::views::drop(room), is_zero);
  }

 private:
  kernels::OwnedSums owned(std::span<std::uint32_t> index, std::span<float> value,
                           std::size_t most) {
    kernels::OwnedSums owned = job_.owned();
    owned.own.index = index;
    owned.own.value = value;
    owned.own.bound = -1;  // nothing reads it
    owned.residual = residual_.span();
    owned.most = most;
    return owned;
  }
  void take_touched(SumsOutcome& out, std::size_t most) {
    const std::uint64_t size = touched_count_.download()[0];
    EXPECT_LE(size, most);
    out.touched = touched_.download();
    out.sum = sum_.download();
    out.touched.resize(std::min<std::uint64_t>(size, most));
    out.sum.resize(out.touched.size());
  }

  Exec exec_;
  const SumsJob& job_;
  std::size_t most_ = job_.most();
  TermsOnPlace terms_;
  OnPlace<float> residual_;
  OnPlace<std::uint32_t> touched_;
  OnPlace<float> sum_;
  OnPlace<std::uint64_t> touched_count_;
};

/// Tries no bound, a carried one, one that is too high, and one whose list lacks room.
void expect_equal_with_any_bound(const Exec& exec, const SumsJob& job, std::size_t k,
                                 const SumsOutcome& expected) {
  SumsOnPlace sums(exec, job);
  SelectBound bound;
  for (int step = 0; step < 2; ++step) expect_equal(sums.select(k, bound), expected);
  bound.bound *= 4;
  expect_equal(sums.select(k, bound), expected);
  bound.bound = 0;
  expect_equal(sums.select(k, bound, 3), expected);
  EXPECT_TRUE(same_bits(sums.residual(), job.residual));
}

class SelectSums : public testing::TestWithParam<Input> {};
INSTANTIATE_TEST_SUITE_P(Inputs, SelectSums,
                         testing::Values(Input::normal, Input::cauchy, Input::all_equal,
                                         Input::all_zero, Input::ascending, Input::denormal,
                                         Input::ties));

TEST_P(SelectSums, EqualsReferenceWithAnyBound) {
  for (const std::size_t count : {1U, 65U, 1000U, 9001U}) {
    for (const std::uint32_t owners : {1U, 3U, 4U}) {
      for (const std::uint64_t base : {0U, 6400U}) {
        const unsigned every = base == 0 ? 1 : 40;
        const SumsJob job(GetParam(), count, owners, base, every);
        if (job.count() == 0) continue;
        for (const std::size_t k : {job.count() / 100 + 1, job.count()}) {
          SCOPED_TRACE(testing::Message() << job.count() << " of " << count << " elements, "
                                          << owners << " owners, 1 of " << every << ", k " << k);
          const SumsOutcome expected = select_sums_by_reference(job, k);
          for_each_body(
              [&](const Exec& exec) { expect_equal_with_any_bound(exec, job, k, expected); });
        }
      }
    }
  }
}

TEST_P(SelectSums, OfManyEqualReference) {
  std::optional<SumsJob> job;
  std::optional<SumsOutcome> expected;
  for_each_body([&](const Exec& exec) {
    if (!job) {
      job.emplace(GetParam(), many(kLargeSize), 7, 6400, 40);
      expected = select_sums_by_reference(*job, job->count() / 100 + 1);
    }
    expect_equal_with_any_bound(exec, *job, job->count() / 100 + 1, *expected);
  });
}

/// Every body but the reference learns the same bound; the reference needs none.
TEST(SelectSumsBound, IsLearntSoThatTheNextStepReadsOnlyWhatMatters) {
  const SumsJob job(Input::normal, 300'000, 3, 0, 50);
  constexpr std::size_t kSelected = 1000;
  Workspace workspace;
  SumsOnPlace on_host({.workspace = &workspace}, job);
  std::vector<SelectBound> learnt(6);
  for (std::size_t step = 0; step + 1 < learnt.size(); ++step) {
    learnt[step + 1] = learnt[step];
    (void)on_host.select(kSelected, learnt[step + 1]);
  }
  for_each_body([&](const Exec& exec) {
    if (exec.place == lab::kReference) return;
    SumsOnPlace sums(exec, job);
    SelectBound bound;
    for (std::size_t step = 0; step + 1 < learnt.size(); ++step) {
      const SelectResult result = sums.select(kSelected, bound).result;
      EXPECT_EQ(result.passes, step == 0 ? 2U : 1U);
      if (step > 0) {
        EXPECT_LT(result.candidates, 2 * kSelected);
      }
      EXPECT_EQ(bound.bound, learnt[step + 1].bound);
      EXPECT_EQ(bound.margin, learnt[step + 1].margin);
      EXPECT_EQ(bound.k, kSelected);
    }
  });
}

/// The replay of a step alone finds the list of the step before, but a bound that was learnt since.
TEST(SelectSumsBound, AListThatIsReadAgainKeepsItsOwn) {
  const SumsJob job(Input::normal, 20'000, 3, 6400, 10);
  constexpr std::size_t kSelected = 300;
  const SumsOutcome expected = select_sums_by_reference(job, kSelected);
  for_each_body([&](const Exec& exec) {
    SumsOnPlace sums(exec, job);
    for (const float by : {1.5F, 3.5F}) {  // the second bound serves too few
      SelectBound bound{.bound = by, .margin = 0.03F, .k = kSelected};
      for (int times = 0; times < 3; ++times) {
        const SumsOutcome got = sums.select(kSelected, bound, by, kAllRoom);
        expect_equal(got, expected);
        EXPECT_FALSE(got.result.overflow);
        if (exec.place != lab::kReference) {
          EXPECT_EQ(got.result.passes, by < 3 ? 1U : 2U);
        }
        bound.bound /= 2;
      }
    }
  });
}

TEST(SelectSumsOrder, IsThatOfRanks) {
  // Rank 1 of 3 owns: (0 + 1e8) + acc + -1e8 loses an acc of 1 and keeps one of 16.
  SumsJob job(Input::all_zero, 64 * 3, 3, 0, 1);
  std::ranges::fill(job.residual, 1.0F);
  job.residual[job.partition.position(1, 7)] = 16;
  job.index[0] = job.index[2] = {5, 7};
  job.value[0] = {1e8F, 1e8F};
  job.value[2] = {-1e8F, -1e8F};
  for_each_body([&](const Exec& exec) {
    SelectBound bound;
    const SumsOutcome got = SumsOnPlace(exec, job).select(1, bound);
    EXPECT_TRUE(got.result.finite);
    EXPECT_EQ(got.sum, (std::vector<float>{0, 16}));
    EXPECT_EQ(got.index, std::vector<std::uint32_t>{7});
    EXPECT_EQ(got.value, std::vector<float>{16});
  });
}

TEST(SelectSumsTerms, AreDecodedWhereTheyAreCoded) {
  const SumsJob job(Input::normal, 20'000, 3, 6400, 7);
  for (const kernels::ValueFormat& format : all_formats()) {
    if (format.block != format.coding->default_block) continue;
    if (format.rounding != kernels::Rounding::nearest) continue;
    SCOPED_TRACE(name_of(format));
    std::vector<SumList> lists = lists_of(job);
    SumsJob decoded = job;
    for (std::size_t r = 0; r < lists.size(); ++r) {
      if (r == job.self) continue;
      lists[r] = code(lists[r], format);
      decoded.value[r] = lists[r].value;
    }
    const SumsOutcome expected = select_sums_by_reference(decoded, 90);
    for_each_body([&](const Exec& exec) {
      SumsOnPlace sums(exec, job, lists);
      SelectBound bound;
      expect_equal(sums.select(90, bound), expected);
      expect_equal(sums.keep(0.75F), keep_sums_by_reference(decoded, 0.75F));
    });
  }
}

/// A job with one sum that is not finite.
SumsJob overflowing_job() {
  SumsJob job(Input::normal, 20'000, 2, 6400, 50);
  const auto entry = std::ranges::lower_bound(job.index[0], job.begin) - job.index[0].begin();
  const auto j = static_cast<std::size_t>(entry);
  const float most = std::numeric_limits<float>::max();
  job.value[0][j] = most;
  job.residual[job.partition.position(job.self, job.index[0][j]) - job.base] = most;
  return job;
}

TEST(SelectSumsOverflow, IsToldAndNothingOfItIsSentOrLearnt) {
  const SumsJob job = overflowing_job();
  for_each_body([&](const Exec& exec) {
    SumsOnPlace sums(exec, job);
    for (const float carried : {0.0F, 1.5F}) {
      SelectBound bound{.bound = carried, .margin = 0.03F, .k = carried > 0 ? 70U : 0U};
      const SumsOutcome out = sums.select(70, bound);
      EXPECT_FALSE(out.result.finite);
      for (std::uint32_t i = 0; i < 70; ++i) {
        EXPECT_EQ(out.index[i], job.begin + i);
        EXPECT_EQ(out.value[i], 0);
      }
      EXPECT_EQ(bound.bound, carried);
    }
  });
}

/// Nothing behind the room is written, and the step learns no bound.
TEST(SelectSumsOverflow, OfTheRoomForTouchedSumsIsTold) {
  constexpr std::size_t kRoom = 50;
  const SumsJob job(Input::normal, 60'000, 2, 6400, 20);
  ASSERT_GT(select_sums_by_reference(job, 1).touched.size(), kRoom);
  for_each_body([&](const Exec& exec) {
    SumsOnPlace sums(exec, job);
    sums.say(kRoom);
    for (const float carried : {0.0F, 1.5F}) {
      SelectBound bound{.bound = carried, .margin = 0.03F, .k = carried > 0 ? 70U : 0U};
      EXPECT_TRUE(sums.select(70, bound).result.overflow);
      EXPECT_EQ(bound.bound, carried);
      EXPECT_TRUE(sums.nothing_behind(kRoom));
    }
  });
}

/// Jobs of one list leave what each leaves alone; a device takes them together, and threads of the
/// host share out the short ones.
TEST(SelectSumsContract, AListEqualsItsJobs) {
  std::deque<SumsJob> inputs;
  std::vector<std::size_t> ks, counts{70, 9001, 30'000, 200};
  for (std::size_t i = 0; i < 20; ++i) counts.push_back(1600 + i);
  for (const std::size_t count : counts) {
    const SumsJob& job = inputs.emplace_back(Input::normal, count, 2, 0, 7);
    ks.push_back((job.count() + 9) / 10);
  }
  for_each_body([&](const Exec& exec) {
    std::vector<SelectBound> bounds(inputs.size());
    for (int call = 0; call < 2; ++call) {
      std::deque<SumsOnPlace> sums;
      std::deque<Selection> selections;
      std::vector<SelectSumsJob> jobs;
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        const float listed_by = bound_for(bounds[i], ks[i]);
        const OwnList list(inputs[i], listed_by, kAllRoom);
        sums.emplace_back(exec, inputs[i]);
        jobs.push_back(sums[i].job(selections.emplace_back(exec, list, ks[i], bounds[i])));
      }
      kernels::select_sums(exec, jobs);
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        SCOPED_TRACE(i);
        SelectBound alone = bounds[i];
        const SumsOutcome expected = SumsOnPlace(exec, inputs[i]).select(ks[i], alone);
        expect_equal(sums[i].download(selections[i], bounds[i]), expected);
        EXPECT_EQ(bounds[i].bound, alone.bound);
        EXPECT_EQ(bounds[i].k, alone.k);
      }
    }
    kernels::select_sums(exec, {});
  });
}

TEST(SelectSumsContract, RefusesWrongShapes) {
  const SumsJob job(Input::normal, 500, 2, 0, 3);
  const std::vector<Term> terms = job.terms(), three(3), whole(2, {.value = job.residual});
  SumsOutcome out(job, 5);
  SelectBound bound;
  SelectResult result{};
  const SelectResult accumulated{
      .finite = true, .candidates = 0, .passes = 1, .listed_by = kInfinity};
  std::uint64_t touched_count = 0;
  Workspace workspace;
  const SelectSumsJob sound{.owned = job.owned(),
                            .accumulated = &accumulated,
                            .terms = {terms},
                            .out = {out.index, out.value, out.touched, out.sum},
                            .touched_count = &touched_count,
                            .state = &bound,
                            .result = &result};
  EXPECT_NO_THROW(kernels::select_sums({.workspace = &workspace}, {&sound, 1}));
  EXPECT_THROW(kernels::select_sums({}, {&sound, 1}), UsageError);
  const auto refuses = [&](const auto& change) {
    SelectSumsJob wrong = sound;
    change(wrong);
    EXPECT_THROW(kernels::select_sums({.workspace = &workspace}, {&wrong, 1}), UsageError);
  };
  refuses([](auto& wrong) { wrong.out.index = wrong.out.index.first(4); });
  refuses([](auto& wrong) { wrong.out.index = wrong.out.index.first(0); });
  refuses([](auto& wrong) { wrong.owned.count = 4; });
  refuses([](auto& wrong) { wrong.out.sum = wrong.out.sum.first(1); });
  refuses([](auto& wrong) { wrong.owned.most = 1; });
  refuses([&](auto& wrong) { wrong.terms = {three}; });
  refuses([&](auto& wrong) { wrong.terms = {whole}; });
  refuses([](auto& wrong) { wrong.accumulated = nullptr; });
  refuses([](auto& wrong) { wrong.touched_count = nullptr; });
  refuses([](auto& wrong) { wrong.state = nullptr; });
  refuses([](auto& wrong) { wrong.result = nullptr; });
}

/// No step takes more scratch than the function says.
TEST(SelectSumsScratch, IsEnough) {
  for_each_body([](const Exec& exec) {
    const SumsJob job(Input::ties, many(250'000), 2, 6400, 7);
    const std::size_t k = job.count() / 50;
    const std::vector<SumList> lists = lists_of(job);
    Exec own = exec;
    Workspace workspace, there(kernels::memory_of(exec.place));
    own.workspace = &workspace;
    if (exec.place == Place::cuda) own.device_workspace = &there;
    Workspace& scratch = kernels::scratch_of(own);
    SumsOnPlace sums(own, job, lists);
    kernels::OwnedSums owned = job.owned();
    std::vector<std::uint32_t> room(job.count());
    owned.own.index = room;
    const std::vector<Term> terms(lists.size());
    const SelectSumsJob sizes{
        .owned = owned, .terms = {terms}, .out = {.index = std::span(room).first(k)}};
    std::size_t bytes = kernels::select_sums_scratch(own, {&sizes, 1});
    bytes += scratch.alignment();  // for the terms, which are not placed before
    scratch.reserve(bytes);
    const std::size_t before = scratch.capacity();
    SelectBound bound;
    for (int step = 0; step < 2; ++step) (void)sums.select(k, bound);
    EXPECT_EQ(scratch.capacity(), before);
  });
}

constexpr float kSmallest = std::numeric_limits<float>::denorm_min();
constexpr float kBounds[] = {kSmallest, 0.75F, 2, std::numeric_limits<float>::max(), kInfinity};

class KeepSums : public testing::TestWithParam<Input> {};
INSTANTIATE_TEST_SUITE_P(Inputs, KeepSums,
                         testing::Values(Input::normal, Input::all_equal, Input::all_zero,
                                         Input::mostly_zero, Input::denormal, Input::ties));

/// The outcome that the declaration demands, from the inputs alone: keep_sums does not keep a sum
/// of zero or one below the bound, whoever named it.
SumsOutcome kept_by_definition(const SumsJob& job, float bound) {
  std::vector<float> sum(job.count(), 0.0F);
  std::vector<bool> named(job.count());
  for (std::uint32_t rank = 0; rank < job.index.size(); ++rank) {
    for (std::uint64_t i = 0; rank == job.self && i < sum.size(); ++i) {
      sum[i] += job.residual[job.partition.position(job.self, job.begin + i) - job.base];
    }
    for (std::size_t j = 0; j < job.index[rank].size(); ++j) {
      const std::uint64_t local = job.index[rank][j];
      if (local < job.begin || local >= job.end) continue;
      sum[local - job.begin] += job.value[rank][j];
      named[local - job.begin] = true;
    }
  }
  SumsOutcome out(job, 0);
  out.touched.clear();
  out.sum.clear();
  out.result.finite = true;
  for (std::uint32_t i = 0; i < sum.size(); ++i) {
    const auto local = static_cast<std::uint32_t>(job.begin + i);
    if (named[i]) {
      out.touched.push_back(local);
      out.sum.push_back(sum[i]);
    }
    if (std::fabs(sum[i]) < bound) continue;
    out.index.push_back(local);
    out.value.push_back(sum[i]);
  }
  return out;
}

void expect_kept(const SumsJob& job) {
  for (const float bound : kBounds) {
    SCOPED_TRACE(testing::Message() << job.count() << " elements, bound " << bound);
    const SumsOutcome expected = kept_by_definition(job, bound);
    for_each_body([&](const Exec& exec) {
      const SumsOutcome got = SumsOnPlace(exec, job).keep(bound);
      expect_equal(got, expected);
      EXPECT_EQ(got.result.candidates, expected.index.size());
    });
  }
}

TEST_P(KeepSums, KeepsWhatReachesTheBound) {
  for (const std::size_t count : {1U, 65U, 1000U, 13'001U}) {
    for (const std::uint32_t owners : {1U, 3U}) {
      for (const unsigned every : {1U, 30U}) {
        SumsJob job(GetParam(), count, owners, 6400, every);
        if (job.count() == 0) continue;
        cancel_some(job);
        expect_kept(job);
      }
    }
  }
}

TEST(KeepSumsOfMany, KeepsWhatReachesTheBound) {
  std::optional<SumsJob> job;
  std::optional<SumsOutcome> expected;
  for_each_body([&](const Exec& exec) {
    if (!job) {
      job.emplace(Input::normal, many(kLargeSize), 3, 6400, 40);
      cancel_some(*job);
      expected = kept_by_definition(*job, 0.75F);
    }
    expect_equal(SumsOnPlace(exec, *job).keep(0.75F), *expected);
  });
}

TEST(KeepSumsOverflow, IsToldAndNothingIsKept) {
  const SumsJob job = overflowing_job();
  for_each_body([&](const Exec& exec) {
    const SumsOutcome got = SumsOnPlace(exec, job).keep(0.5F);
    EXPECT_FALSE(got.result.finite);
    EXPECT_EQ(got.result.candidates, 0U);
    EXPECT_TRUE(got.index.empty());
  });
}

TEST(KeepSumsContract, RefusesWrongShapes) {
  const SumsJob job(Input::normal, 500, 2, 0, 3);
  const auto count = static_cast<std::size_t>(job.count());
  const std::vector<Term> terms = job.terms();
  OwnList own(job, 1, count);
  SumsOutcome out(job, count);
  out.touched.resize(count);
  out.sum.resize(count);
  const SelectResult accumulated = own.said();
  SelectResult result{}, none_listed = accumulated;
  none_listed.listed = count + 1;
  std::uint64_t touched_count = 0, kept = 0, full = 1;
  kernels::OwnedSums owned = job.owned();
  owned.own.index = own.index;
  owned.own.value = own.value;
  owned.most = count;
  Workspace workspace;
  const KeepSumsJob sound{.owned = owned,
                          .accumulated = &accumulated,
                          .terms = {terms},
                          .out = {out.index, out.value, out.touched, out.sum},
                          .kept = &kept,
                          .touched_count = &touched_count,
                          .result = &result};
  EXPECT_NO_THROW(kernels::keep_sums({.workspace = &workspace}, sound));
  kept = 0;
  const auto refuses = [&](const auto& change) {
    KeepSumsJob wrong = sound;
    change(wrong);
    EXPECT_THROW(kernels::keep_sums({.workspace = &workspace}, wrong), UsageError);
  };
  refuses([&](auto& wrong) {
    wrong.out.index = wrong.out.index.first(count - 1);
    wrong.out.value = wrong.out.value.first(count - 1);
  });
  refuses([&](auto& wrong) { wrong.out.value = wrong.out.value.first(count - 1); });
  refuses([&](auto& wrong) { wrong.owned.own.index = wrong.owned.own.index.first(count - 1); });
  refuses([&](auto& wrong) { wrong.owned.most = count - 1; });
  refuses([](auto& wrong) { wrong.kept = nullptr; });
  refuses([&](auto& wrong) { wrong.kept = &full; });
  refuses([&](auto& wrong) { wrong.accumulated = &none_listed; });
}

}  // namespace
}  // namespace winnow::tests
