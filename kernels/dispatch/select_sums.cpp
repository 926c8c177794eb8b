// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/select_sums.hpp"

#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

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
  WINNOW_EXPECTS(job.fed != nullptr && job.touched_count != nullptr && job.result != nullptr,
                 "sums need fed, touched_count and result");
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
    WINNOW_EXPECTS(job.fed->listed_by > 0 && job.fed->listed <= owned.own.index.size(),
                   "all elements that reach the bound, which is above 0, must be listed");
    WINNOW_EXPECTS(*job.kept + owned.count <= job.out.index.size(),
                   "index and value need room for all own elements behind what is kept");
  }
  dispatch(exec, &Bodies::keep_sums, job);
}

}  // namespace winnow::kernels
