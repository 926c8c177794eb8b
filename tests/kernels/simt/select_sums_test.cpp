// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/select_sums.cuh"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/harness/sanitized.hpp"
#include "tests/kernels/cases/sums_cases.hpp"
#include "tests/kernels/value_formats.hpp"
#include "tests/model/in_a_child.hpp"
#include "tests/model/machine.hpp"
#include "tests/model/orders.hpp"
#include "tests/model/scratch.hpp"

namespace winnow::tests {
namespace {

using kernels::SelectBound;
using kernels::SelectResult;
using kernels::cuda::DeviceTerm;

/// Terms in the memory of the model. The one of the owner itself is not to be read.
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
  std::optional<float> listed_by = {};  // else by the carried bound
  std::size_t most = kAllRoom;          // elements that terms are said to name
  int kernels = 0;                      // launched
  int barriers = 0;                     // that a thread met in kernel number `watched`
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
    OwnList list(job, listed_by.value_or(carried), room);
    const SelectResult fed{.finite = true,
                           .candidates = 0,
                           .passes = 1,
                           .listed = list.listed,
                           .listed_by = listed_by.value_or(carried)};
    SumsOutcome out(job, k);
    std::ranges::fill(out.touched, kUnwritten);
    kernels::OwnedSums owned = job.owned();
    owned.own.index = list.index;
    owned.own.value = list.value;
    owned.own.bound = -1;  // not looked at
    owned.most = std::min(owned.most, std::uint64_t{most});
    std::uint64_t touched_count = 77;
    const kernels::cuda::SumsScratch layout(owned, terms.size());
    Scratch scratch(layout.bytes);
    std::memset(scratch.span().data(), 0, layout.select.zeroed);
    const kernels::cuda::SumsTask task = kernels::cuda::make_sums_task(
        {.owned = owned,
         .fed = &fed,
         .terms = {terms},
         .out = {out.index, out.value, std::span(out.touched).first(owned.most),
                 std::span(out.sum).first(owned.most)},
         .touched_count = &touched_count,
         .state = &bound,
         .result = &out.result},
        there.data(), scratch.span().data());
    kernels = 0;
    kernels::cuda::for_each_sums_kernel(
        task, [&](auto kernel, const auto& part, std::uint64_t pieces) {
          const bool is_watched = kernels++ == watched;
          machine.skip_barrier(is_watched ? skipped : -1);
          machine.launch<decltype(kernel)>(
              static_cast<unsigned>(std::min<std::uint64_t>(pieces, blocks)), part);
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

SumsOutcome by_reference(const SumsJob& job, std::size_t k) {
  SelectBound unused;
  return select_sums_on_host(job, {.place = Place::reference}, k, unused);
}

class SelectSumsOnModel : public testing::TestWithParam<Input> {};
INSTANTIATE_TEST_SUITE_P(Inputs, SelectSumsOnModel,
                         testing::Values(Input::normal, Input::all_equal, Input::all_zero,
                                         Input::ascending, Input::denormal, Input::ties));

/// No bound, one that was carried, one that is too high, and one whose list finds no room.
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
          const SumsOutcome expected = by_reference(job, k);
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

TEST(SelectSumsModel, LearnsWhatTheHostLearnsAndReadsOnlyWhatMatters) {
  Machine machine({.pick = SimtOrder::Pick::random, .seed = 2, .resident = 3});
  const SumsJob job(Input::normal, 40'000, 3, 0, 30);
  SelectBound device, host;
  for (int step = 0; step < 4; ++step) {
    const SelectResult got = OnModel{machine}(job, 200, device).result;
    const SelectResult expected = select_sums_on_host(job, {}, 200, host).result;
    EXPECT_EQ(got.passes, step == 0 ? 2U : 1U);
    EXPECT_EQ(got.passes, expected.passes);
    EXPECT_EQ(got.candidates, expected.candidates);
    EXPECT_EQ(device.bound, host.bound);
    EXPECT_EQ(device.margin, host.margin);
    EXPECT_EQ(device.k, host.k);
  }
}

/// A step that is replayed alone finds the list of the step before, and a bound that was learnt
/// since.
TEST(SelectSumsModel, AListThatIsReadAgainKeepsItsBound) {
  Machine machine({.pick = SimtOrder::Pick::random, .seed = 4, .resident = 3});
  const SumsJob job(Input::normal, 20'000, 3, 6400, 10);
  constexpr std::size_t kSelected = 300;
  const SumsOutcome expected = by_reference(job, kSelected);
  for (const float by : {1.5F, 3.5F}) {  // the second serves too few
    OnModel run{machine};
    run.listed_by = by;
    SelectBound bound{.bound = by, .margin = 0.03F, .k = kSelected};
    for (int times = 0; times < 3; ++times) {
      const SumsOutcome got = run(job, kSelected, bound);
      expect_equal(got, expected);
      EXPECT_EQ(got.result.passes, by < 3 ? 1U : 2U);
      EXPECT_FALSE(got.result.overflow);
      bound.bound /= 2;
    }
  }
}

/// Terms that name more than was said: what finds room is written, the result says so, and no bound
/// is learnt. With little room for candidates too, they do not serve.
TEST(SelectSumsModel, TermsThatNameMoreThanWasSaidAreTold) {
  for (const SimtOrder& order : simt_orders()) {
    Machine machine(order);
    for (const Input input : {Input::normal, Input::all_zero}) {
      const SumsJob job(input, 20'000, 2, 6400, 3);
      constexpr std::size_t kSelected = 10, kMost = 50;
      const SumsOutcome expected = by_reference(job, kSelected);
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

TEST(SelectSumsModel, CodedTermsAreDecoded) {
  Machine machine;
  SumsJob job(Input::normal, 20'000, 3, 6400, 7);
  for (const kernels::ValueFormat& format : all_formats()) {
    if (format.block != format.coding->default_block) continue;
    SCOPED_TRACE(name_of(format));
    std::vector<kernels::Term> terms = job.terms();
    SumsJob decoded = job;
    std::vector<Coded> coded;
    for (std::size_t r = 0; r < terms.size(); ++r) {
      std::vector<float> values = job.value[r];
      const std::size_t k = values.size();
      coded.emplace_back(format, k);
      if (r == job.self) continue;
      const std::span<std::byte> bytes = coded.back().span();
      kernels::quantize({.place = Place::reference}, format, {}, values, bytes);
      kernels::dequantize({.place = Place::reference}, format, k, bytes, 0, decoded.value[r]);
      terms[r] = {.index = job.index[r], .format = format, .coded = bytes, .count = k};
    }
    SelectBound bound;
    expect_equal(OnModel{machine}(job, terms, 90, bound, kAllRoom), by_reference(decoded, 90));
  }
}

/// Sums that are not finite are told, nothing of them is sent, and no bound is learnt from them.
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

TEST(SelectSumsModel, RefusesWrongShapes) {
  const SumsJob job(Input::normal, 500, 2, 0, 3);
  const std::vector<kernels::Term> terms = job.terms();
  const std::vector<DeviceTerm> there = place(job, terms);
  SumsOutcome out(job, 5);
  const kernels::OwnedSums owned = job.owned();
  Scratch scratch(kernels::cuda::SumsScratch(owned, 2).bytes);
  const kernels::SelectSumsJob sound{
      .owned = owned, .terms = {terms}, .out = {out.index, out.value, out.touched, out.sum}};
  const auto make = [&](const kernels::SelectSumsJob& of) {
    (void)kernels::cuda::make_sums_task(of, there.data(), scratch.span().data());
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

/// Without any one of its barriers the sum goes wrong, or stops, in some order and step: whether
/// the owner is the first rank or another.
TEST(SelectSumsModel, EveryBarrierIsNeeded) {
  if (kSanitized) GTEST_SKIP() << "hundreds of processes, each slow to start under a sanitizer";
  constexpr std::size_t kSelected = 60;
  for (const std::uint32_t self : {0U, 1U}) {
    const SumsJob job(Input::normal, 30'000, 4, 6400, 3, self);
    const SelectBound carried{.bound = 3, .margin = 0.03F, .k = kSelected};
    const SumsOutcome expected = by_reference(job, kSelected);
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
    // Before the ranks of a tile 3, between them 3, and behind them 3; then a look for the next
    // tile, and the end.
    constexpr int kOfTile = 9, kTiles = 2;
    EXPECT_EQ(barriers, kTiles * kOfTile + 2);
    for (int skipped = 0; skipped < barriers - 1; ++skipped) {
      // Between the first two ranks only a torn addition would show, which the model does not know.
      // Where the owner is not the first, the barrier there does the work of the one before it. The
      // last barrier is the one of StreamPass that feedback_select_test leaves out too.
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

}  // namespace
}  // namespace winnow::tests
