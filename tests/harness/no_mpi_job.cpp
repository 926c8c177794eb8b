// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>

#include "tests/harness/mpi_job.hpp"

namespace winnow::tests {

MpiJob MpiJob::start(int&, char**&, std::size_t, MpiThreads) {
  throw std::runtime_error("--transport=mpi: built without MPI");
}
std::unique_ptr<Transport> MpiJob::transport() const {
  return nullptr;
}
int MpiJob::finish(int exit_code) const {
  return exit_code;
}

}  // namespace winnow::tests
