// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>
#include <winnow/transport.hpp>

namespace winnow::comm {

/// Rules for messages between ranks as threads.
enum class LocalRules : std::uint8_t {
  loose,   ///< only what Transport promises
  strict,  ///< also what NCCL demands, see below
};

/// winnow::local_transports under `rules`. With strict rules sizes do not travel, and
///   - a message whose receive buffer has another size is an error on both ranks;
///   - each start() is a group: its messages move only when all messages of the rank's earlier
///     groups are done. A message is done, for both ranks, when it has been copied. So ranks whose
///     groups wait for each other crosswise wait until their deadline; over a loose transport,
///     whose messages wait only for earlier ones of the same peer, they would go on. Within a
///     group, messages of different peers move in any order.
/// Whatever moves on a strict transport also moves over NCCL, where kernels of one stream run one
/// after another. The reverse does not hold: NCCL buffers short messages, so some groups end there
/// before their peers have begun; no schedule may rely on that.
std::vector<std::unique_ptr<Transport>> local_transports(int size, LocalRules rules);

}  // namespace winnow::comm
