// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/plan/segments.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <functional>
#include <new>
#include <unordered_set>
#include <vector>

#include "comm/plan/differences.hpp"
#include "comm/plan/hash.hpp"
#include "comm/transport/memory.hpp"
#include "kernels/arithmetic/element.hpp"
#include "kernels/exec/place_memory.hpp"

namespace winnow::comm {
namespace {

/// Why elements cannot lie where they are said to, or empty.
std::string memory_error_of(const ConstElements& elements) {
  return memory_error(elements.data(), elements.size(), bytes_of(elements.type()));
}

/// The error in a segment's input, or empty.
std::string input_error(const Segment& segment) {
  const ConstElements& in = segment.input;
  const Elements& out = segment.elements;
  if (in.size() == 0) {
    const bool is_empty = in.data() != nullptr && out.size() > 0;
    return is_empty ? " has another count of elements than its output" : std::string();
  }
  if (std::string wrong = memory_error_of(in); !wrong.empty()) return wrong;
  if (in.type() != out.type()) return " is of another type than its output";
  if (in.size() != out.size()) return " has another count of elements than its output";
  const auto distance = reinterpret_cast<std::uintptr_t>(in.bytes().data()) -
                        reinterpret_cast<std::uintptr_t>(out.bytes().data());
  const std::size_t bytes = out.bytes().size();
  if (distance != 0 && (distance < bytes || distance > std::size_t{0} - bytes)) {
    return " overlaps its output: they are to be the same memory, or apart";
  }
  return {};
}

/// "7", or "'layer1.weight' (id 7)".
std::string tag_of(const Segment& segment) {
  return label_of(segment).substr(std::string_view("parameter ").size());
}

/// Names two segments that share memory, or is empty.
std::string overlap(std::span<const Segment> segments) {
  std::vector<const Segment*> by_address;
  for (const Segment& segment : segments) {
    if (segment.elements.size() > 0) by_address.push_back(&segment);
  }
  const auto bytes = [](const Segment* segment) { return segment->elements.bytes(); };
  std::ranges::sort(by_address, std::less(), [&](const Segment* s) { return bytes(s).data(); });
  for (std::size_t i = 1; i < by_address.size(); ++i) {
    const Segment *const before = by_address[i - 1], *const after = by_address[i];
    if (bytes(after).data() >= bytes(before).data() + bytes(before).size()) continue;
    return "parameters " + tag_of(*before) + " and " + tag_of(*after) + " share memory";
  }
  return {};
}

/// "7 (500 float32)", or "'layer1.weight' (id 7, 500 float32)".
std::string line_of(const Segment& segment) {
  const std::string id = std::to_string(segment.id);
  std::string text = segment.name.empty()
                         ? id + " ("
                         : std::string("'").append(segment.name) + "' (id " + id + ", ";
  text += std::to_string(segment.elements.size()) + " ";
  return text.append(name_of(segment.elements.type())) + ")";
}

}  // namespace

bool is_exempt(const Segment& segment, const Options& options) {
  if (segment.exempt || (options.exempt_1d && segment.dimensions == 1)) return true;
  const std::string name(segment.name);
  return std::ranges::any_of(options.exempt, [&](const std::string& pattern) {
    return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  });
}

std::string label_of(const Segment& segment) {
  return compress::label_of(segment.id, segment.name);
}

std::string_view name_of(ElementType type) {
  constexpr std::array<std::string_view, 10> kNames = {
      "float32", "bf16", "fp16", "float64", "int8", "uint8", "int32", "uint32", "int64", "uint64"};
  const auto i = static_cast<std::size_t>(type);
  return i < kNames.size() ? kNames[i] : "unknown";
}

std::uint64_t bucket_id(std::span<const Segment> segments, ReduceOp op) {
  Hash hash;
  hash.add(static_cast<std::uint64_t>(op));
  for (const Segment& segment : segments) {
    const auto type = static_cast<std::uint64_t>(segment.elements.type());
    hash.add(segment.id).add(segment.elements.size()).add(type);
    const bool wrong = !memory_error_of(segment.elements).empty() || segment.dimensions < 0;
    if (wrong || !input_error(segment).empty()) hash.add("wrong memory");
  }
  return hash.value();
}

std::string refuse(std::span<const Segment> segments, const ParameterStates& parameters,
                   bool plain) {
  std::unordered_set<std::uint64_t> seen;
  for (const Segment& segment : segments) {
    if (!memory_error(segment.name.data(), segment.name.size(), 1).empty()) {
      return compress::label_of(segment.id, {}) + " has a name that lies nowhere";
    }
    const auto before = parameters.find(segment.id);
    const bool has_name = !segment.name.empty() || before == parameters.end();
    const std::string_view name = has_name ? segment.name : before->second.name;
    const auto named = [&](std::string_view what) {
      return compress::label_of(segment.id, name).append(what);
    };
    if (!seen.insert(segment.id).second) return named(" is twice in one bucket");
    const ElementType type = segment.elements.type(), first = segments.front().elements.type();
    if (type > ElementType::uint64) {
      return named(" has elements of unknown type ") + std::to_string(static_cast<int>(type));
    }
    if (type != first && !(kernels::is_gradient(type) && kernels::is_gradient(first))) {
      return named(" has ") + std::string(name_of(type)) + " elements in a bucket of " +
             std::string(name_of(first)) + ": reduce it by a call of its own";
    }
    if (const auto wrong = memory_error_of(segment.elements); !wrong.empty()) {
      return "the data of " + named(wrong);
    }
    if (const auto wrong = input_error(segment); !wrong.empty()) {
      return "the input of " + named(wrong);
    }
    if (segment.dimensions < 0) {
      return named(" has dimensions ") + std::to_string(segment.dimensions) +
             ": must be how many, or 0 where that is not known";
    }
    if (plain && segment.rate != 1) {
      return named(" has a rate, which only sums and averages of gradients take");
    }
    const auto known = plain ? parameters.end() : before;
    if (known != parameters.end() && known->second.count != segment.elements.size()) {
      return named(" had ") + std::to_string(known->second.count) + " elements and now has " +
             std::to_string(segment.elements.size());
    }
  }
  return overlap(segments);
}

std::string refuse_memory(std::span<const Segment> segments, Place place) {
  const auto is_foreign = [place](std::span<const std::byte> bytes) {
    return !bytes.empty() && !kernels::is_within_reach(place, bytes.data());
  };
  for (const Segment& segment : segments) {
    if (!is_foreign(segment.elements.bytes()) && !is_foreign(segment.input.bytes())) continue;
    return label_of(segment) + " does not lie in the memory of this AllReducer's device";
  }
  return {};
}

std::string lines_of(std::span<const Segment> segments, ReduceOp op, const Options& options) {
  constexpr std::array<std::string_view, 5> kOps = {"a sum", "an average", "a minimum", "a maximum",
                                                    "a product"};
  std::string text(kOps.at(static_cast<std::size_t>(op)));
  for (std::size_t i = 0; i < segments.size() && text.size() < kMostWords; ++i) {
    text += "\nparameter number " + std::to_string(i + 1) + ", " + line_of(segments[i]);
    if (is_exempt(segments[i], options)) text += ", exempt,";
  }
  return text;
}

std::string text_of(std::span<const Segment> segments) {
  constexpr std::size_t kMost = 3;
  std::string text = "parameters";
  for (const Segment& segment : segments.first(std::min(segments.size(), kMost))) {
    text += &segment == segments.data() ? " " : ", ";
    text += line_of(segment);
  }
  return segments.size() > kMost ? text + ", ..." : text;
}

std::string with_call_here(std::string refused, std::span<const Segment> segments) {
  try {
    refused += "; called here: a bucket of " + text_of(segments);
  } catch (const std::bad_alloc&) {
    // The ranks know that they cannot go on.
  }
  return refused;
}

}  // namespace winnow::comm
