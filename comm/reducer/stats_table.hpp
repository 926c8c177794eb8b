// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <span>
#include <string>
#include <winnow/options.hpp>
#include <winnow/stats.hpp>

namespace winnow::comm {

/// The name of a bucket's first named parameter, or else the bucket's id, in hexadecimal.
void append_label(std::string& text, const BucketStats& bucket);

/// Writes, in one call of out.write, a table of what an AllReducer's calls did on one rank: a row a
/// bucket, a row of totals, and for each bucket that travels dense, why. What is measured has
/// columns where Options::stats is 2.
void write_stats_table(std::ostream& out, int ranks, const Options& options,
                       std::span<const BucketStats> buckets, const Stats& totals);

}  // namespace winnow::comm
