// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "comm/schedule/schedule.hpp"

namespace winnow::comm {

/// The messages that a part's schedule ended with, as write_outcome takes them.
compress::Outcome outcome_of(const Exchange& exchange);

/// Writes the sum of compressed messages into the elements; returns whether all of it is finite. A
/// WholeSum is left to Schedule::write.
bool write_outcome(Exchange& exchange);

/// Runs part i through schedules[i], with `write` at its end; those of one RunTogether
/// together, without. A few parts are under way at once:
/// while one part's messages travel, another is encoded or added. All ranks enqueue in the same
/// order, and enqueue all parts whatever they find, since a rank on a device may not look
/// (comm/call/stream_ordered.hpp). Returns whether everything found was finite: equal on all ranks,
/// but for parts that run together. Throws what a schedule throws.
bool run_parts(std::span<const Schedule* const> schedules, std::span<Exchange> exchanges,
               bool (*write)(Exchange&) = write_outcome);

}  // namespace winnow::comm
