// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/elements.hpp>
#include <winnow/exec.hpp>

#include "kernels/exec/place_memory.hpp"
#include "kernels/value_coding.hpp"

namespace winnow::kernels {

/// A sparse vector: index ascending without repeats. A view.
struct SparseView {
  std::span<const std::uint32_t> index;
  std::span<const float> value;  ///< as many as index
};

/// One rank's term of a sum, in one of four forms:
///   index and value   a list: values at some positions, ascending
///   index and coded   a list whose `count` values kernels::quantize has written
///   value alone       a value at every position from 0 on
///   coded alone       a value at every position, `count` of them, coded
/// A term without values is a list without entries.
struct Term {
  std::span<const std::uint32_t> index = {};
  std::span<const float> value = {};
  ValueFormat format = {};
  std::span<const std::byte> coded = {};  ///< on a device 8-byte aligned
  std::uint64_t count = 0;

  bool is_coded() const { return !coded.empty(); }
  /// How many values it has.
  std::uint64_t size() const { return is_coded() ? count : value.size(); }
  bool is_list() const { return !index.empty() || size() == 0; }
};

/// Elements that begin at a position: a multiple of Partition::kUnit where there are several.
/// float32, but where an operation says that it takes 16 bits, too.
struct PlacedSpan {
  Elements elements;
  std::uint64_t base = 0;

  constexpr std::uint64_t end() const { return base + elements.size(); }
};

/// A list of one, which the host reads in place and a launch takes along; it must stay until the
/// operation has returned.
inline Placed<PlacedSpan> alone(const PlacedSpan& span) {
  return {{&span, 1}, nullptr};
}

namespace cuda {
struct DeviceTerm;
}

/// Terms of the host, and a device's copy. Any operation also takes a list that is not placed; on a
/// device it then places the list itself, if it has to.
struct PlacedTerms {
  std::span<const Term> host = {};
  const cuda::DeviceTerm* placed = nullptr;  ///< not null on a device, once they are placed
};

/// As many terms travel with a launch of ordered_sum.
inline constexpr std::size_t kTermsInALaunch = 16;

/// Makes terms known to the bodies of exec.place, for several operations. On the host, lists with
/// coded values are decoded once, into scratch of exec.workspace: room for `most` values (or for
/// the list, if that is longer) is taken for each term, so that a caller who passes the same `most`
/// in each step takes the same scratch. On a device terms travel with launches, like the list of
/// `store`, and become scratch of exec.device_workspace; operations also look at the host's list,
/// which must stay. UsageError if the parts of a term do not fit together.
PlacedTerms place_terms(const Exec& exec, std::span<const Term> terms, std::uint64_t most = 0);

/// Places terms for ordered_sum alone, which on a device carries up to kTermsInALaunch terms with
/// its launch: only longer lists are placed there.
PlacedTerms place_terms_to_sum(const Exec& exec, std::span<const Term> terms,
                               std::uint64_t most = 0);

}  // namespace winnow::kernels
