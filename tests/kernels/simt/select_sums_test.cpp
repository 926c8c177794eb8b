// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/select_sums.cuh"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "tests/harness/sanitized.hpp"
#include "tests/kernels/cases/sums_cases.hpp"
#include "tests/model/in_a_child.hpp"
#include "tests/model/machine.hpp"
#include "tests/model/orders.hpp"
#include "tests/model/scratch.hpp"

namespace winnow::tests {
namespace {

using kernels::SelectBound;
using kernels::SelectResult;
using kernels::cuda::DeviceTerm;
using kernels::cuda::OneSums;
using kernels::cuda::SelectMemory;

/// Places terms in the memory of the model. The kernel must not read the owner's own term.
std::vector<DeviceTerm> place(const SumsJob& job, std::span<const kernels::Term> terms) {
  std::vector<DeviceTerm> there(terms.size());
  std::ranges::transform(terms, there.begin(), kernels::cuda::device_term);
  there[job.self] = {.values = {}, .count = 99, .is_list = true, .index = nullptr};
  return there;
}

constexpr std::uint32_t kUnwritten = 0xdeadbeef;

struct OnModel {
  Machine& machine;
  unsigned blocks = 3;
  std::size_t most = kAllRoom;  // elements that terms are said to name
  int kernels = 0;              // launched
  int barriers = 0;             // that a thread met in kernel number `watched`
  int watched = -1;
  int skipped = -1;  // barrier of that kernel

  SumsOutcome operator()(const SumsJob& job, std::size_t k, SelectBound& bound,
                         std::size_t room = kAllRoom) {
    return (*this)(job, job.terms(), k, bound, room);
  }

  SumsOutcome operator()(const SumsJob& job, const std::vector<kernels::Term>& terms, std::size_t k,
                         SelectBound& bound, std::size_t room) {
    const std::vector<DeviceTerm> there = place(job, terms);
    const float carried = bound.k == k ? bound.bound : std::numeric_limits<float>::infinity();
    OwnList list(job, carried, room);
    const SelectResult accumulated = list.said();
    SumsOutcome out(job, k);
    std::ranges::fill(out.touched, kUnwritten);
    kernels::OwnedSums owned = job.owned();
    owned.own.index = list.index;
    owned.own.value = list.value;
    owned.own.bound = -1;  // nothing reads it
    owned.most = std::min(owned.most, std::uint64_t{most});
    std::uint64_t touched_count = 77;
    const kernels::cuda::SumsScratch layout(owned, terms.size());
    Scratch scratch(layout.bytes);
    std::memset(scratch.span().data(), 0, layout.select.zeroed);
    const kernels::cuda::SumsTask task = kernels::cuda::make_sums_task(
        {.owned = owned,
         .accumulated = &accumulated,
         .terms = {terms},
         .out = {out.index, out.value, std::span(out.touched).first(owned.most),
                 std::span(out.sum).first(owned.most)},
         .touched_count = &touched_count,
         .state = &bound,
         .result = &out.result},
        there.data(), SelectMemory::in(scratch.span().data(), layout));
    kernels = 0;
    kernels::cuda::for_each_sums_kernel(
        OneSums{task}, kernels::cuda::pass_tiles(task.select.count),
        [&](const auto& kernel, std::uint64_t pieces) {
          const bool is_watched = kernels++ == watched;
          machine.skip_barrier(is_watched ? skipped : -1);
          machine.launch(static_cast<unsigned>(std::min<std::uint64_t>(pieces, blocks)), kernel);
          if (is_watched) barriers = machine.barriers();
        });
    EXPECT_LE(touched_count, owned.most);
    EXPECT_TRUE(std::all_of(out.touched.begin() + static_cast<std::ptrdiff_t>(owned.most),
                            out.touched.end(), [](std::uint32_t i) { return i == kUnwritten; }));
    out.touched.resize(std::min(touched_count, owned.most));
    out.sum.resize(out.touched.size());
    return out;
  }
};

std::size_t k_of(const SumsJob& job) {
  return (job.count() + 9) / 10;
}

/// Runs all jobs in the same launches.
std::vector<SumsOutcome> sum_together(Machine& machine, const std::deque<SumsJob>& jobs,
                                      std::vector<SelectBound>& bounds) {
  struct Memory {
    std::vector<kernels::Term> terms;
    std::vector<DeviceTerm> there;
    OwnList list;
    SelectResult accumulated;
    SumsOutcome out;
    std::uint64_t touched_count = 77;
    Scratch scratch;
  };
  std::deque<Memory> memories;
  std::vector<kernels::cuda::SumsTask> tasks;
  std::uint32_t tiles = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const SumsJob& job = jobs[i];
    const float carried =
        bounds[i].k == k_of(job) ? bounds[i].bound : std::numeric_limits<float>::infinity();
    OwnList list(job, carried, kAllRoom);
    kernels::OwnedSums owned = job.owned();
    owned.own.index = list.index;
    const kernels::cuda::SumsScratch layout(owned, job.index.size());
    Memory& m = memories.emplace_back(Memory{.terms = job.terms(),
                                             .there = {},
                                             .list = list,
                                             .accumulated = list.said(),
                                             .out = SumsOutcome(job, k_of(job)),
                                             .scratch = Scratch(layout.bytes)});
    m.there = place(job, m.terms);
    std::memset(m.scratch.span().data(), 0, layout.zeroed);
    owned.own.index = m.list.index;
    owned.own.value = m.list.value;
    tasks.push_back(kernels::cuda::make_sums_task(
        {.owned = owned,
         .accumulated = &m.accumulated,
         .terms = {m.terms},
         .out = {m.out.index, m.out.value, m.out.touched, m.out.sum},
         .touched_count = &m.touched_count,
         .state = &bounds[i],
         .result = &m.out.result},
        m.there.data(), SelectMemory::in(m.scratch.span().data(), layout)));
    tasks.back().select.first_tile = tiles;
    tiles += kernels::cuda::pass_tiles(tasks.back().select.count);
  }
  const kernels::cuda::ManySums many{tasks.data(), static_cast<std::uint32_t>(tasks.size()), tiles,
                                     &tasks.front().select.control->stream_ticket};
  kernels::cuda::for_each_sums_kernel(many, tiles, [&](const auto& kernel, std::uint64_t blocks) {
    machine.launch(static_cast<unsigned>(std::min<std::uint64_t>(blocks, 3)), kernel);
  });
  std::vector<SumsOutcome> outs;
  for (Memory& m : memories) {
    m.out.touched.resize(m.touched_count);
    m.out.sum.resize(m.touched_count);
    outs.push_back(m.out);
  }
  return outs;
}

class SelectSumsOnModel : public testing::TestWithParam<Input> {};
INSTANTIATE_TEST_SUITE_P(Inputs, SelectSumsOnModel,
                         testing::Values(Input::normal, Input::all_equal, Input::all_zero,
                                         Input::ascending, Input::denormal, Input::ties));

/// Tries no bound, a carried one, one that is too high, and one whose list lacks room.
TEST_P(SelectSumsOnModel, EqualsReferenceWithAnyBound) {
  std::deque<Machine> machines;
  std::size_t turn = 0;
  for (const SimtOrder& order : simt_orders()) machines.emplace_back(order);
  for (const std::size_t count : {1U, 65U, 9001U}) {
    for (const std::uint32_t owners : {1U, 2U, 4U}) {
      for (const unsigned every : {1U, 40U}) {
        const SumsJob job(GetParam(), count, owners, 6400, every);
        if (job.count() == 0) continue;
        for (const std::size_t k : {job.count() / 100 + 1, job.count()}) {
          SCOPED_TRACE(testing::Message() << job.count() << " of " << count << " elements, "
                                          << owners << " owners, 1 of " << every << ", k " << k);
          OnModel run{machines[turn++ % machines.size()]};
          const SumsOutcome expected = select_sums_by_reference(job, k);
          SelectBound bound;
          expect_equal(run(job, k, bound), expected);
          const SumsOutcome carried = run(job, k, bound);
          expect_equal(carried, expected);
          EXPECT_EQ(bound.k, k);
          bound.bound *= 4;
          expect_equal(run(job, k, bound), expected);
          bound.bound = 0;
          expect_equal(run(job, k, bound, 3), expected);
        }
      }
    }
  }
}

/// Terms name more elements than was said: the kernel writes the elements that find room, the
/// result says so, and the step learns no bound. If the candidates also lack room, they do not
/// serve.
TEST(SelectSumsModel, TermsThatNameMoreThanWasSaidAreTold) {
  for (const SimtOrder& order : simt_orders()) {
    Machine machine(order);
    for (const Input input : {Input::normal, Input::all_zero}) {
      const SumsJob job(input, 20'000, 2, 6400, 3);
      constexpr std::size_t kSelected = 10, kMost = 50;
      const SumsOutcome expected = select_sums_by_reference(job, kSelected);
      ASSERT_GT(expected.touched.size(), kMost);
      OnModel run{machine};
      run.most = kMost;
      SelectBound bound{.bound = 0.5F, .margin = 0.03F, .k = kSelected};
      const SumsOutcome got = run(job, kSelected, bound, input == Input::normal ? kAllRoom : 1);
      EXPECT_TRUE(got.result.overflow);
      EXPECT_EQ(got.result.passes, input == Input::normal ? 1U : 2U);
      EXPECT_TRUE(std::ranges::equal(got.touched, std::span(expected.touched).first(kMost)));
      EXPECT_TRUE(same_bits(got.sum, std::span(expected.sum).first(kMost)));
      EXPECT_EQ(bound.bound, 0.5F);
    }
  }
}

/// The result reports sums that are not finite; the step sends none of them and learns no bound.
TEST(SelectSumsModel, AnOverflowIsToldAndNothingOfItIsSent) {
  for (const SimtOrder& order : simt_orders()) {
    Machine machine(order);
    for (const float carried : {0.0F, 1.5F}) {
      SumsJob job(Input::normal, 20'000, 2, 6400, 50);
      const auto entry = std::ranges::lower_bound(job.index[0], job.begin) - job.index[0].begin();
      const auto j = static_cast<std::size_t>(entry);
      const float most = std::numeric_limits<float>::max();
      job.value[0][j] = most;
      job.residual[job.partition.position(job.self, job.index[0][j]) - job.base] = most;
      SelectBound bound{.bound = carried, .margin = 0.03F, .k = carried > 0 ? 70U : 0U};
      const SumsOutcome out = OnModel{machine}(job, 70, bound);
      EXPECT_FALSE(out.result.finite);
      for (std::uint32_t i = 0; i < 70; ++i) {
        EXPECT_EQ(out.index[i], job.begin + i);
        EXPECT_EQ(out.value[i], 0);
      }
      EXPECT_EQ(bound.bound, carried);
    }
  }
}

/// Sums whose tasks share each launch, with a first bound and with a learnt one.
TEST(SelectSumsModel, ManyTasksEqualReference) {
  std::deque<SumsJob> jobs;
  for (const std::size_t count : {70U, 9001U, 200U, 20'000U}) {
    jobs.emplace_back(Input::normal, count, 2, 6400, 7);
  }
  for (const SimtOrder& order : simt_orders()) {
    SCOPED_TRACE(testing::Message() << order);
    Machine machine(order);
    std::vector<SelectBound> bounds(jobs.size());
    for (int step = 0; step < 2; ++step) {
      const auto outs = sum_together(machine, jobs, bounds);
      for (std::size_t i = 0; i < jobs.size(); ++i) {
        SCOPED_TRACE(testing::Message() << "step " << step << ", task " << i);
        expect_equal(outs[i], select_sums_by_reference(jobs[i], k_of(jobs[i])));
      }
    }
  }
}

TEST(SelectSumsModel, RefusesWrongShapes) {
  const SumsJob job(Input::normal, 500, 2, 0, 3);
  const std::vector<kernels::Term> terms = job.terms();
  const std::vector<DeviceTerm> there = place(job, terms);
  SumsOutcome out(job, 5);
  const kernels::OwnedSums owned = job.owned();
  const kernels::cuda::SumsScratch layout(owned, 2);
  Scratch scratch(layout.bytes);
  const kernels::SelectSumsJob sound{
      .owned = owned, .terms = {terms}, .out = {out.index, out.value, out.touched, out.sum}};
  const auto make = [&](const kernels::SelectSumsJob& of) {
    (void)kernels::cuda::make_sums_task(of, there.data(),
                                        SelectMemory::in(scratch.span().data(), layout));
  };
  EXPECT_NO_THROW(make(sound));
  const auto refuses = [&](const auto& change, const std::string& why) {
    kernels::SelectSumsJob wrong = sound;
    change(wrong);
    EXPECT_THAT([&] { make(wrong); }, testing::ThrowsMessage<UsageError>(testing::HasSubstr(why)));
  };
  refuses([](auto& wrong) { wrong.owned.begin = 3; }, "multiple of 64");
  refuses(
      [](auto& wrong) {
        wrong.out.touched = wrong.out.touched.first(wrong.out.touched.size() - 1);
        wrong.out.sum = wrong.out.sum.first(wrong.out.touched.size());
      },
      "where that is less, count");
}

/// Without any one of its barriers the sum goes wrong, or stops, in some order and step, both if
/// the owner is the first rank and if it is another one.
TEST(SelectSumsModel, EveryBarrierIsNeeded) {
  if (kSanitized) GTEST_SKIP() << "hundreds of processes, each slow to start under a sanitizer";
  constexpr std::size_t kSelected = 60;
  for (const std::uint32_t self : {0U, 1U}) {
    const SumsJob job(Input::normal, 30'000, 4, 6400, 3, self);
    const SelectBound carried{.bound = 3, .margin = 0.03F, .k = kSelected};
    const SumsOutcome expected = select_sums_by_reference(job, kSelected);
    const auto works = [&](const SimtOrder& order, int skipped, int* barriers = nullptr) {
      Machine machine(order);
      OnModel run{machine, 2};
      run.watched = 1;
      run.skipped = skipped;
      SelectBound bound = carried;
      const SumsOutcome got = run(job, kSelected, bound);
      if (barriers != nullptr) *barriers = run.barriers;
      return got.index == expected.index && same_bits(got.value, expected.value) &&
             got.touched == expected.touched && same_bits(got.sum, expected.sum) &&
             got.result.passes == 1;
    };
    int barriers = 0;
    EXPECT_TRUE(works({}, -1, &barriers));
    // A tile has 3 barriers before the ranks, 3 between them and 3 behind them. The look for the
    // next tile has one, and so has the end.
    constexpr int kOfTile = 9, kTiles = 2;
    EXPECT_EQ(barriers, kTiles * kOfTile + 2);
    for (int skipped = 0; skipped < barriers - 1; ++skipped) {
      // Between the first two ranks only a torn addition would show, which the model does not know.
      // If the owner is not the first rank, the barrier there does the work of the one before it.
      // The last barrier is the one of StreamPass that feedback_select_test leaves out, too.
      const int of_tile = skipped % kOfTile;
      if (of_tile == 3 || (of_tile == 2 && self > 0)) continue;
      const auto orders = simt_orders(4);
      EXPECT_TRUE(std::ranges::any_of(orders,
                                      [&](const SimtOrder& order) {
                                        return !works_in_a_child(
                                            [&] { return works(order, skipped); });
                                      }))
          << "owner " << self << ", barrier " << skipped << " of " << barriers;
    }
  }
}

constexpr std::size_t kBefore = 3;  // elements already in the list

/// A list of `room` places behind those that are taken.
struct List {
  std::vector<std::uint32_t> index;
  std::vector<float> value;
  std::uint64_t kept = kBefore;

  explicit List(std::size_t room) : index(kBefore + room, 77), value(kBefore + room, 77) {}

  /// Gives the list without its first elements, and checks that these are unchanged.
  void give(std::vector<std::uint32_t>& indices, std::vector<float>& values) const {
    ASSERT_GE(kept, kBefore);
    ASSERT_LE(kept, index.size());
    const auto from = static_cast<std::ptrdiff_t>(kBefore), to = static_cast<std::ptrdiff_t>(kept);
    const auto is_untouched = [](auto x) { return x == 77; };
    EXPECT_TRUE(std::all_of(index.begin(), index.begin() + from, is_untouched));
    EXPECT_TRUE(std::all_of(value.begin(), value.begin() + from, is_untouched));
    EXPECT_TRUE(std::all_of(index.begin() + to, index.end(), is_untouched));
    EXPECT_TRUE(std::all_of(value.begin() + to, value.end(), is_untouched));
    indices = {index.begin() + from, index.begin() + to};
    values = {value.begin() + from, value.begin() + to};
  }
};

constexpr float kBounds[] = {std::numeric_limits<float>::denorm_min(), 0.75F, 2,
                             std::numeric_limits<float>::infinity()};

struct KeepOnModel {
  Machine& machine;

  SumsOutcome operator()(const SumsJob& job, float bound) {
    const std::vector<kernels::Term> terms = job.terms();
    const std::vector<DeviceTerm> there = place(job, terms);
    OwnList own(job, bound, job.count());
    const SelectResult accumulated = own.said();
    List list(job.count());
    SumsOutcome out(job, 0);
    out.touched.resize(job.count());
    out.sum.resize(job.count());
    kernels::OwnedSums owned = job.owned();
    owned.own.index = own.index;
    owned.own.value = own.value;
    owned.own.bound = -1;  // nothing reads it
    owned.most = job.count();
    std::uint64_t touched_count = 77;
    const kernels::cuda::SumsScratch layout(owned, terms.size());
    Scratch scratch(layout.bytes);
    std::memset(scratch.span().data(), 0, layout.select.zeroed);
    const auto task = kernels::cuda::make_keep_task(
        {.owned = owned,
         .accumulated = &accumulated,
         .terms = {terms},
         .out = {list.index, list.value, out.touched, out.sum},
         .kept = &list.kept,
         .touched_count = &touched_count,
         .result = &out.result},
        there.data(), SelectMemory::in(scratch.span().data(), layout));
    kernels::cuda::for_each_keep_kernel(task, [&](const auto& kernel, std::uint64_t pieces) {
      const auto blocks = static_cast<unsigned>(std::min<std::uint64_t>(pieces, 3));
      machine.launch(blocks, kernel);
    });
    EXPECT_LE(touched_count, out.touched.size());
    out.touched.resize(std::min<std::size_t>(touched_count, out.touched.size()));
    out.sum.resize(out.touched.size());
    if (out.result.finite) {
      list.give(out.index, out.value);
    } else {
      EXPECT_EQ(list.kept, kBefore);
    }
    return out;
  }
};

class KeepSumsOnModel : public testing::TestWithParam<Input> {};
INSTANTIATE_TEST_SUITE_P(Inputs, KeepSumsOnModel,
                         testing::Values(Input::normal, Input::all_equal, Input::all_zero,
                                         Input::mostly_zero, Input::denormal, Input::ties));

TEST_P(KeepSumsOnModel, EqualsReferenceInAnyOrder) {
  std::deque<Machine> machines;
  std::size_t turn = 0;
  for (const SimtOrder& order : simt_orders()) machines.emplace_back(order);
  for (const std::size_t count : {1U, 65U, 9001U}) {
    for (const std::uint32_t owners : {1U, 2U, 4U}) {
      for (const unsigned every : {1U, 40U}) {
        SumsJob job(GetParam(), count, owners, 6400, every);
        if (job.count() == 0) continue;
        cancel_some(job);
        for (const float bound : kBounds) {
          SCOPED_TRACE(testing::Message()
                       << job.count() << " of " << count << " elements, " << owners
                       << " owners, 1 of " << every << ", bound " << bound);
          const SumsOutcome expected = keep_sums_by_reference(job, bound);
          const SumsOutcome got = KeepOnModel{machines[turn++ % machines.size()]}(job, bound);
          expect_equal(got, expected);
          EXPECT_EQ(got.result.candidates, expected.index.size());
        }
      }
    }
  }
}

/// The result reports sums that are not finite, and keep_sums keeps nothing of this parameter.
TEST(KeepSumsModel, AnOverflowIsToldAndNothingIsKept) {
  for (const SimtOrder& order : simt_orders()) {
    Machine machine(order);
    SumsJob job(Input::normal, 20'000, 2, 6400, 50);
    const auto entry = std::ranges::lower_bound(job.index[0], job.begin) - job.index[0].begin();
    const auto j = static_cast<std::size_t>(entry);
    const float most = std::numeric_limits<float>::max();
    job.value[0][j] = most;
    job.residual[job.partition.position(job.self, job.index[0][j]) - job.base] = most;
    const SumsOutcome out = KeepOnModel{machine}(job, 0.5F);
    EXPECT_FALSE(out.result.finite);
    EXPECT_EQ(out.result.candidates, 0U);
  }
}

}  // namespace
}  // namespace winnow::tests
