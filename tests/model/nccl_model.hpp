// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace winnow::tests {

enum class NcclJob { connect, split };

/// In the model of NCCL: the next such job of `rank` fails once all ranks have come, on that rank
/// only.
void fail_next(NcclJob job, int rank);

/// How often all ranks have called a function that enqueues.
std::uint64_t calls_of(const std::string& name);

/// Communicators of the model that have not ended.
std::size_t living_communicators();

}  // namespace winnow::tests
