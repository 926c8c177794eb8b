// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <winnow/allreducer.hpp>

#include "comm/plan/bucket.hpp"

namespace winnow::comm {

/// Why a reduce-scatter of `input` to `output` cannot be made by itself, or empty: operation,
/// types, counts, or memory that overlaps.
std::string refuse_scatter(const Segment& input, const Elements& output, ReduceOp op,
                           const World& world);

/// Plans the reduce-scatter `id`, which refuse_scatter has passed: one part for each rank's shard,
/// or a single one that goes dense. There is no choice by time: a dense reduce-scatter moves as
/// many messages. Allocates the state in `parameters`. Throws UsageError for what the compressor or
/// an earlier call of the parameter does not allow.
Bucket plan_scatter(std::uint64_t id, const Segment& input, const Options& options,
                    const World& world, const compress::Compressor& compressor,
                    ParameterStates& parameters);

}  // namespace winnow::comm
