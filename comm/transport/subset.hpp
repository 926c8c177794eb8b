// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <winnow/transport.hpp>

namespace winnow::comm {

/// A view of `parent` in which rank i is parent's rank ranks[i]. It has no queues of its own: its
/// messages and the parent's between the same two ranks keep one common order, and an abort or an
/// error of either is one of both. Collectives are the default bodies.
std::unique_ptr<Transport> make_subset(Transport& parent, std::span<const int> ranks);

/// Where `parent`'s rank is in `ranks`. Throws UsageError where it is not, or they are no group.
int place_in_subset(const Transport& parent, std::span<const int> ranks);

}  // namespace winnow::comm
