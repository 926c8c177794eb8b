// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <span>
#include <string>
#include <winnow/options.hpp>
#include <winnow/stats.hpp>

namespace winnow::comm {

/// The name of a bucket's first named parameter, otherwise the bucket's id in hexadecimal.
void append_label(std::string& text, const BucketStats& bucket);

/// Writes a table of an AllReducer's calls on one rank in one out.write: a row per bucket, a row of
/// totals, and the reason of each bucket that travels dense. Measured values have columns if
/// Options::stats is 2.
void write_stats_table(std::ostream& out, int ranks, const Options& options,
                       std::span<const BucketStats> buckets, const Stats& totals);

}  // namespace winnow::comm
