// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "train/exit.hpp"
#include "train/launch.hpp"

namespace train {

bool has_mpi() {
  return false;
}

int launch_mpi(std::size_t, const RankMain&) {
  std::fprintf(stderr, "train: built without MPI; use --transport local\n");
  return kUsageStatus;
}

}  // namespace train
