// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/owned.hpp"

#include <cmath>
#include <utility>
#include <vector>

#include "kernels/arithmetic/element.hpp"

namespace winnow::kernels::reference {

namespace {

/// The position of value j.
std::uint64_t position_of(const OwnedJob& job, std::uint64_t j) {
  return job.partition.position(job.owner, job.values.index.empty() ? j : job.values.index[j]);
}

/// The element of a position; none if it is of no piece.
Elements element_at(const Placed<PlacedSpan>& pieces, std::uint64_t position) {
  for (const PlacedSpan& piece : pieces.host) {
    if (position < piece.base || position - piece.base >= piece.elements.size()) continue;
    return piece.elements.subspan(position - piece.base, 1);
  }
  return {};
}

/// The element for value j.
Elements element_of(const OwnedJob& job, std::uint64_t j) {
  return element_at(job.pieces, position_of(job, j));
}

/// Calls each(element, value, its position) for all values that go somewhere.
template <class Each>
void for_each_position(const Exec& exec, const OwnedJob& job, const Each& each) {
  std::vector<float> value(job.values.value.begin(), job.values.value.end());
  if (!job.values.coded.empty()) {
    value.resize(job.values.count);
    dequantize(exec, job.values.format, job.values.count, job.values.coded, 0, value);
  }
  for (std::uint64_t j = 0; j < job.size(); ++j) {
    const Elements element = element_of(job, j);
    if (element.size() > 0) each(element, value[j], position_of(job, j));
  }
}

/// Calls each(element, value) for all values that go somewhere.
template <class Each>
void for_each(const Exec& exec, const OwnedJob& job, const Each& each) {
  for_each_position(exec, job, [&](const Elements& element, float value, std::uint64_t) {
    each(element, value);
  });
}

}  // namespace

void add_owned(const Exec& exec, const OwnedJob& job) {
  for_each(exec, job, [](const Elements& element, float value) { element.floats()[0] += value; });
}

void store_owned(const Exec& exec, const OwnedJob& job) {
  for (std::size_t i = 0; i < job.runs.host.size(); ++i) reference::store_owned(exec, job.run(i));
  if (!job.runs.host.empty()) return;
  for_each(exec, job, [](const Elements& element, float value) {
    if (std::isfinite(value)) element.floats()[0] = value;
  });
}

void write_owned(const Exec& exec, const OwnedJob& job, const OwnedWrite& sums) {
  const Rests& rests = sums.rests;
  if (rests.are_none()) return;
  for_each_position(exec, job, [&](const Elements& element, float value, std::uint64_t position) {
    const ElementRange range = range_of(element.type());
    const float sum = value * sums.factor;
    const bool exceeded = range.exceeded_by(sum);
    if (!rests.empty()) {
      if (!exceeded || !rests.keeper.keeps(position)) return;
      float& residual = element_at(rests.residuals, position).floats()[0];
      residual = rests.keeper.add_rest(residual, sum, range);
      return;
    }
    if (!std::isfinite(write_element(element, 0, range.clip(sum)))) *sums.not_finite = 1;
    if (exceeded && sums.too_large != nullptr) *sums.too_large = 1;
  });
}

void take_owned(const Exec&, const OwnedJob& job, std::span<float> taken) {
  for (std::uint64_t j = 0; j < job.size(); ++j) {
    const std::span<float> element = element_of(job, j).floats();
    taken[j] = element.empty() ? 0 : std::exchange(element[0], 0.0F);
  }
}

void fill_pieces(const Exec&, const Placed<PlacedSpan>& pieces, float value) {
  for (const PlacedSpan& piece : pieces.host) {
    for (std::size_t i = 0; i < piece.elements.size(); ++i) write_element(piece.elements, i, value);
  }
}

}  // namespace winnow::kernels::reference
