// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <winnow/transport.hpp>

namespace winnow::comm {

/// A view of `parent` whose rank i is parent's rank ranks[i]. It has no queues of its own: its
/// messages and the parent's between two ranks share one order, and an abort or error of either
/// hits both. Collectives are the default bodies.
std::unique_ptr<Transport> make_subset(Transport& parent, std::span<const int> ranks);

/// The place of `parent`'s rank in `ranks`. Throws UsageError if it is missing or `ranks` is no
/// group.
int place_in_subset(const Transport& parent, std::span<const int> ranks);

}  // namespace winnow::comm
