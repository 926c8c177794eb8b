// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/split.hpp"

#include <limits>

#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

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

}  // namespace winnow::kernels
