// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace winnow::kernels {

/// Runs part(job, i) for each i in [0, n) and returns when all have ended: in the calling thread
/// and in threads that this one keeps for it until it ends, as many as can be started. Who is free
/// takes the next part, the lowest first. A part must not throw; one that calls run_parts runs
/// those parts itself. Helpers that have nothing to do poll for a fraction of a millisecond, so
/// that kernels which follow each other wake nobody, and then sleep: other threads need the cores.
void run_parts(std::size_t n, void (*part)(void* job, std::size_t i), void* job);

}  // namespace winnow::kernels
