// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/call/staged_segments.hpp"

#include <algorithm>

#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/together.hpp"
#include "kernels/half.hpp"
#include "kernels/memory_ops.hpp"

namespace winnow::comm {

namespace {

bool is_half(const Segment& segment) {
  return segment.elements.type() == ElementType::bf16 ||
         segment.elements.type() == ElementType::fp16;
}

/// Segments begin at a multiple of 16 bytes, where vectors are loaded whole, and else follow each
/// other, so that a collective may take them as one.
constexpr std::size_t kVector = 4;

bool is_in_place(const Segment& segment) {
  return segment.input.size() == 0 ||
         segment.input.bytes().data() == segment.elements.bytes().data();
}

/// Whether the compressed parts of this call take what lies in their segments.
bool takes_as_given(const Bucket& bucket, std::span<const Segment> segments,
                    const compress::Preconditioner& preconditioner) {
  if (bucket.as_given != AsGiven::pass) return bucket.as_given == AsGiven::selection;
  const ElementType type = segments[bucket.parts.front().segments.front()].elements.type();
  const auto is_plain = [&](std::size_t segment) {
    const Segment& one = segments[segment];
    return one.elements.type() == type && preconditioner.leaves(one.rate);
  };
  return std::ranges::all_of(
      std::span(bucket.parts).first(bucket.compressed),
      [&](const BucketPart& part) { return std::ranges::all_of(part.segments, is_plain); });
}

}  // namespace

void StagedSegments::view(const Exec& exec, std::span<const Segment> segments, const Bucket& bucket,
                          const compress::Preconditioner& preconditioner) {
  given_ = wide_ = segments;
  if (std::ranges::none_of(segments, is_half)) return;
  stays_.assign(segments.size(), false);
  if (takes_as_given(bucket, segments, preconditioner)) {
    for (const BucketPart& part : std::span(bucket.parts).first(bucket.compressed)) {
      for (const std::size_t segment : part.segments) stays_[segment] = true;
    }
  }
  scratch_.assign(segments.begin(), segments.end());
  const auto place_of = [&](std::size_t segment) {
    const Segment& one = segments[segment];
    return is_half(one) && !stays_[segment]
               ? (one.elements.size() + kVector - 1) / kVector * kVector
               : 0;
  };
  std::size_t places = 0;
  for (std::size_t s = 0; s < segments.size(); ++s) places += place_of(s);
  std::span<float> left = kernels::scratch_of(exec).take<float>(places);
  for (std::size_t s = 0; s < segments.size(); ++s) {
    if (!is_half(segments[s]) || stays_[s]) continue;
    scratch_[s].elements = left.first(segments[s].elements.size());
    left = left.subspan(place_of(s));
  }
  wide_ = scratch_;
}

void StagedSegments::read(const Exec& exec) const {
  kernels::together(exec, [&] {
    for (std::size_t s = 0; s < given_.size(); ++s) {
      const Elements out = given_[s].elements;
      const ConstElements in = is_in_place(given_[s]) ? out : given_[s].input;
      if (is_widened(s)) {
        kernels::widen(exec, in.type(), in.halves(), wide_[s].elements.floats());
      } else if (!is_in_place(given_[s])) {
        kernels::copy(exec, out.bytes(), in.bytes());
      }
    }
  });
}

bool StagedSegments::has_original(std::size_t segment) const {
  return is_widened(segment) || !is_in_place(given_[segment]);
}

void StagedSegments::narrow(const Exec& exec) const {
  kernels::together(exec, [&] {
    for (std::size_t s = 0; s < given_.size(); ++s) {
      if (!is_widened(s)) continue;
      kernels::narrow(exec, given_[s].elements.type(), wide_[s].elements.floats(),
                      given_[s].elements.halves());
    }
  });
}

}  // namespace winnow::comm
