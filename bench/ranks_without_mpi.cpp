// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <cerrno>  // program_invocation_short_name
#include <cstdio>

#include "bench/ranks.hpp"

namespace winnow::bench {

int run_mpi(const RankMain&) {
  std::fprintf(stderr, "%s: built without MPI; start it without mpirun\n",
               program_invocation_short_name);
  return 1;
}

}  // namespace winnow::bench
