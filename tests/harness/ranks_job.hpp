// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/harness/mpi_job.hpp"

namespace winnow::tests {

/// Makes run_ranks run over `job`, which must outlive it, instead of over threads.
void use_job(const MpiJob& job);

/// Makes run_ranks's threads keep NCCL's rules (comm/transport/local/local.hpp).
void use_strict_threads();

/// Makes run_ranks mix two transports of each rank: one within nodes of two, and one between them.
void use_mixed();

/// Makes run_ranks run over simulated ranks of one node instead of over threads.
void use_simulation();

}  // namespace winnow::tests
