// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/owned.hpp"

#include "kernels/arithmetic/element.hpp"
#include "kernels/dispatch/bodies.hpp"
#include "kernels/dispatch/expect_rests.hpp"

namespace winnow::kernels {

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

}  // namespace winnow::kernels
