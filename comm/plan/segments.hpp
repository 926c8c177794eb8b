// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <winnow/allreducer.hpp>
#include <winnow/options.hpp>

#include "compress/part.hpp"

// A bucket's segments as a call gives them: what identifies them, what is wrong with them, and how
// texts of errors name them.

namespace winnow::comm {

/// The state of each parameter, by id.
using ParameterStates = std::unordered_map<std::uint64_t, compress::ParameterState>;

/// Whether it travels dense in any bucket.
bool is_exempt(const Segment& segment, const Options& options);

/// The type's name in error messages.
std::string_view name_of(ElementType type);

/// Identifies a bucket by the ids, counts and element types of its segments, in order, and by the
/// operation. A bucket with a wrong input gets another id, so no call has ever met it.
std::uint64_t bucket_id(std::span<const Segment> segments, ReduceOp op);

/// The error in a bucket by itself, or empty. `plain`: it is no sum of gradients, and its
/// parameters need not be known.
std::string refuse(std::span<const Segment> segments, const ParameterStates& parameters,
                   bool plain);

/// compress::label_of it.
std::string label_of(const Segment& segment);

/// A bucket's first parameters, for error messages: "parameters 1 (500 float32), 2 (10 bf16)", or
/// "parameters 'layer1.weight' (id 1, 500 float32)".
std::string text_of(std::span<const Segment> segments);

/// Describes a bucket for OwnWords, so that ranks can name the first difference: the operation,
/// then as many parameters as fit in kMostWords, one a line.
std::string lines_of(std::span<const Segment> segments, ReduceOp op, const Options& options);
/// `refused`, why ranks cannot make a call together, and what this rank called; without that where
/// there is no memory for it.
std::string with_call_here(std::string refused, std::span<const Segment> segments);

/// Why a bucket's memory lies in the wrong place, or empty.
std::string refuse_memory(std::span<const Segment> segments, Place place);

}  // namespace winnow::comm
