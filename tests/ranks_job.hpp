// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/mpi_job.hpp"

namespace winnow::tests {

/// Makes run_ranks run over `job`, which must live on, instead of over threads.
void use_job(const MpiJob& job);

/// Makes run_ranks run over simulated ranks of one node instead of over threads.
void use_simulation();

}  // namespace winnow::tests
