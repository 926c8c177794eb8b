// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "bench/ranks.hpp"

namespace winnow::bench {

int run_mpi(const RankMain&) {
  std::fprintf(stderr, "bench_allreduce: built without MPI; start it without mpirun\n");
  return 1;
}

}  // namespace winnow::bench
