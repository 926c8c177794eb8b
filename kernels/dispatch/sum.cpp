// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "kernels/arithmetic/element.hpp"
#include "kernels/arithmetic/partition.hpp"
#include "kernels/dispatch/bodies.hpp"
#include "kernels/dispatch/expect_rests.hpp"
#include "kernels/merge.hpp"
#include "kernels/ordered_sum.hpp"
#include "kernels/owned.hpp"
#include "kernels/residual_add.hpp"
#include "kernels/terms.hpp"

namespace winnow::kernels {

// merge.hpp

void merge(const Exec& exec, const MergeJob& job) {
  const SparseView &first = job.first, &second = job.second;
  WINNOW_EXPECTS(
      first.index.size() == first.value.size() && second.index.size() == second.value.size(),
      "a list needs as many values as indices");
  const std::size_t most = first.index.size() + second.index.size();
  WINNOW_EXPECTS(job.index.size() >= most && job.value.size() >= most,
                 "index and value need room for both lists");
  WINNOW_EXPECTS(job.size != nullptr, "merge needs a word for the size of the union");
  dispatch(exec, &Bodies::merge, job);
}

// ordered_sum.hpp

void ordered_sum(const Exec& exec, const OrderedSumJob& job) {
  std::uint64_t end = 0;
  for (const PlacedSpan& sum : job.sums.host) {
    WINNOW_EXPECTS(sum.base >= end, "sums must be disjoint, and ascend by position");
    WINNOW_EXPECTS(job.sums.host.size() == 1 || sum.base % Partition::kUnit == 0,
                   "several sums begin at multiples of " + std::to_string(Partition::kUnit));
    expect_gradient(sum.elements.type());
    end = sum.end();
  }
  for (const Term& term : job.terms.host) {
    WINNOW_EXPECTS(term.is_list() ? term.index.size() == term.size() : end <= term.size(),
                   "a term has a value for each index, or one for every position");
  }
  expect_rests_of(job.sums, job.rests);
  dispatch(exec, &Bodies::ordered_sum, job);
}

// owned.hpp

namespace {

void check(const OwnedJob& job) {
  const bool is_list = !job.values.index.empty();
  WINNOW_EXPECTS(job.owner < job.partition.owners(),
                 "values by local number must be of one of the partition's owners");
  WINNOW_EXPECTS(job.most() <= job.partition.local_count(job.owner),
                 "an owner has at most as many values as positions");
  WINNOW_EXPECTS(!is_list || job.values.index.size() == job.most(),
                 "a list needs as many values as indices");
  WINNOW_EXPECTS(job.count == nullptr || is_list || job.most() == 0,
                 "how many values there are may be open of a list alone");
}

void check_floats(const OwnedJob& job) {
  for (const PlacedSpan& piece : job.pieces.host) {
    WINNOW_EXPECTS(piece.elements.type() == ElementType::float32,
                   "values are added to float32 elements, and taken out of them, alone");
  }
}

void check_no_runs(const OwnedJob& job) {
  check(job);
  WINNOW_EXPECTS(job.runs.host.empty(), "only store_owned takes a list of runs");
}

}  // namespace

void add_owned(const Exec& exec, const OwnedJob& job) {
  check_no_runs(job);
  check_floats(job);
  dispatch(exec, &Bodies::add_owned, job);
}

void store_owned(const Exec& exec, const OwnedJob& job) {
  check(job);
  check_floats(job);
  WINNOW_EXPECTS(job.runs.host.empty() || (job.count == nullptr && !job.values.is_coded()),
                 "a list of runs has no other count and no coded values");
  dispatch(exec, &Bodies::store_owned, job);
}

void write_owned(const Exec& exec, const OwnedJob& job, const OwnedWrite& sums) {
  check_no_runs(job);
  for (const PlacedSpan& piece : job.pieces.host) expect_gradient(piece.elements.type());
  WINNOW_EXPECTS(sums.not_finite != nullptr || !sums.rests.empty(),
                 "write_owned needs a word for not_finite");
  expect_rests_of(job.pieces, sums.rests);
  dispatch(exec, &Bodies::write_owned, job, sums);
}

void take_owned(const Exec& exec, const OwnedJob& job, std::span<float> taken) {
  check_no_runs(job);
  check_floats(job);
  WINNOW_EXPECTS(taken.size() == job.most(), "what is taken must be as many as the values");
  dispatch(exec, &Bodies::take_owned, job, taken);
}

void fill_pieces(const Exec& exec, const Placed<PlacedSpan>& pieces, float value) {
  for (const PlacedSpan& piece : pieces.host) expect_gradient(piece.elements.type());
  dispatch(exec, &Bodies::fill_pieces, pieces, value);
}

// residual_add.hpp

void residual_add(const Exec& exec, std::span<float> residual, std::span<const float> gradient) {
  WINNOW_EXPECTS(residual.size() == gradient.size(),
                 "residual and gradient must have as many elements");
  dispatch(exec, &Bodies::residual_add, residual, gradient);
}

// terms.hpp

PlacedTerms place_terms(const Exec& exec, std::span<const Term> terms, std::uint64_t most) {
  PlacedTerms placed{.host = terms};
  dispatch(exec, &Bodies::place_terms, placed, most);
  return placed;
}

PlacedTerms place_terms_to_sum(const Exec& exec, std::span<const Term> terms, std::uint64_t most) {
  const bool fits_launch = exec.place == Place::cuda && terms.size() <= kTermsInALaunch;
  return fits_launch ? PlacedTerms{.host = terms} : place_terms(exec, terms, most);
}

}  // namespace winnow::kernels
