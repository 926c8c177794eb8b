// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <string>

#include "kernels/arithmetic/element.hpp"
#include "kernels/dispatch/bodies.hpp"
#include "kernels/feedback_select.hpp"
#include "kernels/select_sums.hpp"
#include "kernels/split.hpp"
#include "kernels/take.hpp"

namespace winnow::kernels {

// feedback_select.hpp

namespace {

constexpr std::size_t kMost = std::numeric_limits<std::uint32_t>::max();

void check(const OwnUnits& own) {
  if (own.partition == nullptr) return;
  WINNOW_EXPECTS(own.base % Partition::kUnit == 0,
                 "a parameter with own units must start at a multiple of 64, not at " +
                     std::to_string(own.base));
  WINNOW_EXPECTS(own.self < own.partition->owners(),
                 "the owner of own units must be one of the partition's");
  WINNOW_EXPECTS(own.index.size() == own.value.size(),
                 "the list of own elements needs a value for each index");
}

/// Elements that compete: those that are not own.
std::size_t check(const FeedbackSpans& spans) {
  const std::size_t count = spans.gradient.size();
  WINNOW_EXPECTS(count <= kMost,
                 "a parameter must have fewer than 2^32 elements; cut it into pieces");
  WINNOW_EXPECTS(spans.residual.size() == count,
                 "gradient and residual must have as many elements");
  expect_gradient(spans.gradient.type());
  check(spans.own);
  return count - spans.own.size(count);
}

}  // namespace

void feedback_select(const Exec& exec, std::span<const FeedbackSelectJob> jobs) {
  bool has_own = false, one_side = false;
  for (const FeedbackSelectJob& job : jobs) {
    const std::size_t competing = check(job.spans), k = job.index.size();
    WINNOW_EXPECTS(k <= competing && job.value.size() == k,
                   "index and value must have k elements each, at most as many as are not own");
    WINNOW_EXPECTS(job.state != nullptr && job.result != nullptr,
                   "feedback_select needs a state and a result in the memory of its place");
    has_own |= job.spans.own.partition != nullptr;
    one_side |= job.side != Side::both;
  }
  WINNOW_EXPECTS(!has_own || !one_side,
                 "where there are own units, elements of both sides are selected");
  dispatch(exec, &Bodies::feedback_select, jobs);
}

std::size_t feedback_select_scratch(const Exec& exec, std::span<const FeedbackSelectJob> jobs) {
  return body_of(exec, &Bodies::feedback_select_scratch)(exec, jobs);
}

void feedback_threshold(const Exec& exec, const FeedbackThresholdJob& job) {
  const std::size_t competing = check(job.spans), places = job.index.size();
  WINNOW_EXPECTS(job.bound > 0, "a bound must be above 0");
  WINNOW_EXPECTS(job.kept != nullptr && job.result != nullptr,
                 "feedback_threshold needs kept and a result in the memory of its place");
  // The host does not look at what a device has kept.
  const std::uint64_t kept = exec.place == Place::cuda ? 0 : *job.kept;
  WINNOW_EXPECTS(
      job.value.size() == places && places <= kMost && kept <= places && places - kept >= competing,
      "index and value must have as many places each, at least one for each element "
      "that is not own, and fewer than 2^32");
  dispatch(exec, &Bodies::feedback_threshold, job);
}

std::size_t feedback_threshold_scratch(const Exec& exec, std::size_t count, std::size_t listed) {
  return body_of(exec, &Bodies::feedback_threshold_scratch)(exec, count, listed);
}

// select_sums.hpp

namespace {

template <class Job>
void check(const Exec& exec, const Job& job) {
  const OwnedSums& owned = job.owned;
  const std::span<const Term> terms = job.terms.host;
  WINNOW_EXPECTS(owned.own.partition != nullptr && owned.own.partition->owners() == terms.size(),
                 "there must be a term, maybe empty, for each owner");
  for (std::size_t rank = 0; rank < terms.size(); ++rank) {
    WINNOW_EXPECTS(rank == owned.own.self ||
                       (terms[rank].is_list() && terms[rank].index.size() == terms[rank].size()),
                   "terms must be lists with a value for each index");
  }
  WINNOW_EXPECTS(
      job.out.touched.size() == job.out.sum.size() && job.out.touched.size() <= owned.most,
      "touched and sum must have equal sizes, at most `most`");
  WINNOW_EXPECTS(
      job.accumulated != nullptr && job.touched_count != nullptr && job.result != nullptr,
      "sums need accumulated, touched_count and result");
  WINNOW_EXPECTS(exec.place == Place::cuda || exec.workspace != nullptr,
                 "selection needs Exec::workspace");
}

}  // namespace

void select_sums(const Exec& exec, std::span<const SelectSumsJob> jobs) {
  for (const SelectSumsJob& job : jobs) {
    check(exec, job);
    const std::size_t k = job.out.index.size();
    WINNOW_EXPECTS(k >= 1 && k <= job.owned.count && job.out.value.size() == k,
                   "index and value must have k elements each, 1 <= k <= count");
    WINNOW_EXPECTS(job.state != nullptr, "select_sums needs a state");
  }
  dispatch(exec, &Bodies::select_sums, jobs);
}

std::size_t select_sums_scratch(const Exec& exec, std::span<const SelectSumsJob> jobs) {
  return body_of(exec, &Bodies::select_sums_scratch)(exec, jobs);
}

void keep_sums(const Exec& exec, const KeepSumsJob& job) {
  check(exec, job);
  const OwnedSums& owned = job.owned;
  WINNOW_EXPECTS(job.kept != nullptr, "keep_sums needs kept");
  WINNOW_EXPECTS(
      job.out.index.size() >= owned.count && job.out.value.size() == job.out.index.size(),
      "index and value must have as many places each, at least one for each own element");
  WINNOW_EXPECTS(owned.own.index.size() >= owned.count && owned.most >= owned.count,
                 "there must be room for all own elements in the list of those that reach the "
                 "bound, and in touched and sum");
  if (exec.place != Place::cuda) {
    WINNOW_EXPECTS(
        job.accumulated->listed_by > 0 && job.accumulated->listed <= owned.own.index.size(),
        "all elements that reach the bound, which is above 0, must be listed");
    WINNOW_EXPECTS(*job.kept + owned.count <= job.out.index.size(),
                   "index and value need room for all own elements behind what is kept");
  }
  dispatch(exec, &Bodies::keep_sums, job);
}

// split.hpp

std::size_t split_scratch(const Exec& exec, const Partition& partition, std::size_t k) {
  return body_of(exec, &Bodies::split_scratch)(exec, partition, k);
}

void split_by_owner(const Exec& exec, const SplitJob& job) {
  const std::size_t k = job.list.index.size();
  WINNOW_EXPECTS(k <= std::numeric_limits<std::uint32_t>::max() && k <= job.partition.count(),
                 "a list has at most as many entries as positions, and fewer than 2^32");
  WINNOW_EXPECTS(job.list.value.size() == k && job.local.size() == k && job.value.size() == k,
                 "index, value, local and the sorted value must have equal sizes");
  WINNOW_EXPECTS(job.begin.size() == std::size_t{job.partition.owners()} + 1,
                 "begin must have a place for each owner and one more");
  dispatch(exec, &Bodies::split_by_owner, job);
}

void positions_of(const Exec& exec, const Partition& partition, std::uint32_t owner,
                  std::span<const std::uint32_t> local, std::span<std::uint32_t> index) {
  WINNOW_EXPECTS(owner < partition.owners() && local.size() == index.size(),
                 "positions_of takes one of the partition's owners and as many indices as numbers");
  dispatch(exec, &Bodies::positions_of, partition, owner, local, index);
}

// take.hpp

namespace {

void check(const Exec& exec, std::size_t count, std::uint32_t base,
           std::span<const std::uint32_t> index, std::span<const float> value) {
  WINNOW_EXPECTS(index.size() == value.size(), "a support needs a value for each of its positions");
  if (exec.place == Place::cuda) return;  // what lies in device memory is not looked into
  WINNOW_EXPECTS(index.empty() || (index.front() >= base && index.back() - base < count),
                 "a support must lie within the elements");
}

}  // namespace

void take(const Exec& exec, std::span<float> elements, std::uint32_t base,
          std::span<const std::uint32_t> index, std::span<float> value) {
  check(exec, elements.size(), base, index, value);
  dispatch(exec, &Bodies::take, elements, base, index, value);
}

void put(const Exec& exec, std::span<float> elements, std::uint32_t base, const SparseView& list) {
  check(exec, elements.size(), base, list.index, list.value);
  dispatch(exec, &Bodies::put, elements, base, list);
}

}  // namespace winnow::kernels
