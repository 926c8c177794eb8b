// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <winnow/transport.hpp>

#include "tests/harness/tcp_ranks.hpp"

namespace winnow::tests {

/// A job of which this process is a rank.
struct Job {
  int ranks;
  /// A new transport over all ranks; collective.
  std::function<std::unique_ptr<Transport>()> connect;
};

/// Makes run_ranks run over `job` instead of over threads.
void use_job(const Job& job);

/// Makes run_ranks's threads talk over the TCP transport.
void use_tcp(TcpWay way);

/// Makes run_ranks's threads keep NCCL's rules (comm/transport/local/local.hpp).
void use_strict_threads();

/// Makes run_ranks mix two transports of each rank: one within nodes of two, and one between them.
void use_mixed();

/// Makes run_ranks run over simulated ranks of one node instead of over threads.
void use_simulation();

}  // namespace winnow::tests
