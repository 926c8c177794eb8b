// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

namespace winnow::tests {

// What ranks of NCCL are, in a test of its transport. By file: processes that share one GPU
// (nccl_processes.cpp), or threads over a model of NCCL in host memory (nccl_model.cpp).

/// Why there can be no ranks here; empty where there can.
std::string why_no_nccl_ranks();

/// Runs `body` on every rank; what it throws is a failure.
void run_nccl_ranks(int ranks, const std::function<void(int rank)>& body);

}  // namespace winnow::tests
