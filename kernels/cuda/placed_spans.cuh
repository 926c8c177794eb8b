// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <winnow/error.hpp>

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/simt.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/terms.hpp"

namespace winnow::kernels::cuda {

/// Spans ascending by base, as kernels take them.
struct DeviceSpans {
  PlacedSpan only;  ///< if there is a single one
  const PlacedSpan* placed;
  std::uint32_t count;

  WINNOW_DEVICE const PlacedSpan& at(std::uint32_t i) const {
    return count == 1 ? only : placed[i];
  }
  /// Calls each(s, from, to) for the spans, by number, that have positions [from, to) of a tile.
  template <class Each>
  WINNOW_DEVICE void for_each_span(std::uint64_t begin, std::uint64_t end, const Each& each) const {
    for (std::uint32_t s = first_behind(begin); s < count && at(s).base < end; ++s) {
      const PlacedSpan& span = at(s);
      each(s, begin > span.base ? begin : span.base, end < span.end() ? end : span.end());
    }
  }
  /// Calls each(elements, first, size) for the parts of spans that lie in a tile of positions,
  /// which they reach `first` positions behind its begin.
  template <class Each>
  WINNOW_DEVICE void for_each(std::uint64_t begin, std::uint64_t end, const Each& each) const {
    for_each_span(begin, end, [&](std::uint32_t s, std::uint64_t from, std::uint64_t to) {
      each(device_elements(at(s).elements).from(from - at(s).base),
           static_cast<std::uint32_t>(from - begin), static_cast<std::uint32_t>(to - from));
    });
  }

 private:
  /// The first span that ends behind a position.
  WINNOW_DEVICE std::uint32_t first_behind(std::uint64_t position) const {
    std::uint32_t first = 0, last = count;
    while (first < last) {
      const std::uint32_t middle = first + (last - first) / 2;
      if (at(middle).end() <= position) {
        first = middle + 1;
      } else {
        last = middle;
      }
    }
    return first;
  }
};

inline DeviceSpans device_spans(const Placed<PlacedSpan>& spans) {
  WINNOW_EXPECTS(spans.host.size() <= 1 || spans.placed != nullptr,
                 "several spans must be placed in device memory");
  return {spans.host.size() == 1 ? spans.host.front() : PlacedSpan{}, spans.placed,
          static_cast<std::uint32_t>(spans.host.size())};
}

}  // namespace winnow::kernels::cuda
