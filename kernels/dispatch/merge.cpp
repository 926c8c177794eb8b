// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/merge.hpp"

#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

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

}  // namespace winnow::kernels
