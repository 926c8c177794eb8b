// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>
#include <winnow/transport.hpp>

namespace winnow::comm {

/// What ranks as threads demand of the messages between them.
enum class LocalRules : std::uint8_t {
  loose,   ///< what Transport promises, and no more
  strict,  ///< what NCCL demands too, see below
};

/// winnow::local_transports that keep to `rules`. Strict ones say that sizes do not travel, and
///   - a message whose buffer has another size is an error, on both ranks;
///   - what one start() sets going is a group: none of its messages moves before all messages of
///     the rank's earlier groups are done, and a message is done, for both, when it has been
///     copied. So ranks whose groups wait for each other crosswise wait until their deadline, where
///     those of a loose transport, whose messages wait for earlier ones of the same peer alone,
///     would go on. Within a group messages of different peers move in any order.
/// Nothing moves on a strict transport that would not move over NCCL, where kernels of one stream
/// run one after another. The reverse is not so: NCCL buffers what is short, so some groups end
/// there before their peers have begun; no schedule may count on it.
std::vector<std::unique_ptr<Transport>> local_transports(int size, LocalRules rules);

}  // namespace winnow::comm
