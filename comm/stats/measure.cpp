// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/stats/measure.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <type_traits>

#include "comm/plan/hash.hpp"
#include "kernels/arithmetic/element.hpp"
#include "kernels/arithmetic/with_type.hpp"
#include "kernels/exec/place_memory.hpp"

namespace winnow::comm {
namespace {

/// Any NaN as one value: a native collective may leave different payloads on each rank.
template <class T>
std::uint64_t bits_of(T element) {
  if constexpr (std::is_floating_point_v<T>) {
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    return std::bit_cast<Bits>(std::isnan(element) ? std::numeric_limits<T>::quiet_NaN() : element);
  } else {
    return static_cast<std::make_unsigned_t<T>>(element);
  }
}

/// Elements where the host can read them: for a device, a copy in exec.workspace.
template <class T>
class HostCopy {
 public:
  HostCopy(const Exec& exec, std::span<const T> elements) : elements_(elements) {
    if (!kernels::reading_waits(exec)) return;
    scope_.emplace(*exec.workspace);
    const auto copies = exec.workspace->take<T>(elements.size());
    kernels::read(exec, std::as_writable_bytes(copies), std::as_bytes(elements));
    elements_ = copies;
  }
  std::span<const T> span() const { return elements_; }

 private:
  std::optional<Workspace::Scope> scope_;
  std::span<const T> elements_;
};

}  // namespace

void measure(const Exec& exec, std::span<const Segment> segments, const Bucket& bucket,
             Stats& call) {
  std::uint64_t sum = 0, nonzero = 0, weight = 1, count = 0;
  for (const Segment& segment : segments) {
    count += segment.elements.size();
    const auto see = [&](auto element) {
      sum += bits_of(element) * weight;
      weight += 2;
      nonzero += element != 0 ? 1 : 0;
    };
    const ElementType type = segment.elements.type();
    if (bytes_of(type) == sizeof(std::uint16_t)) {
      const HostCopy<std::uint16_t> halves(exec, segment.elements.halves());
      for (std::size_t i = 0; i < segment.elements.size(); ++i) {
        see(kernels::read_element({halves.span().data(), halves.span().size(), type}, i));
      }
      continue;
    }
    kernels::with_type(type, [&]<class T>(T) {
      const HostCopy<T> elements(exec, segment.elements.as<T>());
      for (const T element : elements.span()) see(element);
    });
  }
  call.measured = count;
  call.nonzero = nonzero;
  call.digest = Hash().add(count).add(sum).value();

  double squares = 0;
  for (const BucketPart& part : bucket.parts) {
    for (const compress::Piece& piece : part.part.pieces) {
      const HostCopy<float> residual(exec, piece.residual());
      for (const double left : residual.span()) squares += left * left;
    }
  }
  call.residual_norm = std::sqrt(squares);
}

}  // namespace winnow::comm
