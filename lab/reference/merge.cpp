// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/merge.hpp"

namespace winnow::kernels::reference {

void merge(const Exec&, const MergeJob& job) {
  const SparseView &first = job.first, &second = job.second;
  std::size_t i = 0, j = 0, size = 0;
  while (i < first.index.size() || j < second.index.size()) {
    const bool in_first =
        j == second.index.size() || (i < first.index.size() && first.index[i] <= second.index[j]);
    const bool in_second =
        i == first.index.size() || (j < second.index.size() && second.index[j] <= first.index[i]);
    job.index[size] = in_first ? first.index[i] : second.index[j];
    if (in_first && in_second) {
      job.value[size] = first.value[i] + second.value[j];
    } else {
      job.value[size] = in_first ? first.value[i] : second.value[j];
    }
    i += in_first ? 1 : 0;
    j += in_second ? 1 : 0;
    ++size;
  }
  *job.size = size;
}

}  // namespace winnow::kernels::reference
