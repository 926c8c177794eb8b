// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "comm/schedule/schedule.hpp"

namespace winnow::comm {

/// Writes what compressed messages sum up to into the elements; whether all of it is finite.
bool write_outcome(Exchange& exchange);

/// Runs parts through their schedules (schedules[i] for exchanges[i]), with `write` at the end of
/// each; a few at once: while the messages of one part travel, the next is encoded or the one
/// before is added. All ranks enqueue in the same order, and all parts whatever is found, since a
/// rank on a device may not look (comm/reducer/unseen.hpp). Returns whether nothing was found that
/// is not finite, the same on all ranks. Throws what a schedule throws.
bool run_parts(std::span<const Schedule* const> schedules, std::span<Exchange> exchanges,
               bool (*write)(Exchange&) = write_outcome);

}  // namespace winnow::comm
