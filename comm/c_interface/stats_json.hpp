// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <winnow/stats.hpp>

namespace winnow::comm {

/// An object with all members. A field that was not measured is null.
std::string to_json(const Stats& stats);
/// Arrays of objects.
std::string to_json(std::span<const BucketStats> buckets);
std::string to_json(std::span<const Stats> all);

}  // namespace winnow::comm
