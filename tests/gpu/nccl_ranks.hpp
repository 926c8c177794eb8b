// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

namespace winnow::tests {

// The ranks of NCCL tests. The linked file decides: processes that share one GPU
// (nccl_processes.cpp), or threads over a model of NCCL in host memory (nccl_model.cpp).

/// Why there can be no ranks here, or empty.
std::string why_no_nccl_ranks();

/// Runs `body` on every rank; an exception is a failure.
void run_nccl_ranks(int ranks, const std::function<void(int rank)>& body);

}  // namespace winnow::tests
