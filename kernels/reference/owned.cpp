// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/owned.hpp"

#include <cmath>
#include <vector>

namespace winnow::kernels::reference {

namespace {

/// The element for value j; null if its position is of no piece.
float* element_of(const OwnedJob& job, std::uint64_t j) {
  const std::uint64_t local = job.values.index.empty() ? j : job.values.index[j];
  const std::uint64_t position = job.partition.position(job.owner, local);
  for (const PlacedSpan& piece : job.pieces.host) {
    if (position < piece.base || position - piece.base >= piece.elements.size()) continue;
    return &piece.elements[position - piece.base];
  }
  return nullptr;
}

/// Calls each(element, value) for all values that go somewhere.
template <class Each>
void for_each(const Exec& exec, const OwnedJob& job, const Each& each) {
  std::vector<float> value(job.values.value.begin(), job.values.value.end());
  if (!job.values.coded.empty()) {
    value.resize(job.values.count);
    dequantize(exec, job.values.format, job.values.count, job.values.coded, 0, value);
  }
  for (std::uint64_t j = 0; j < job.size(); ++j) {
    float* const element = element_of(job, j);
    if (element != nullptr) each(*element, value[j]);
  }
}

}  // namespace

void add_owned(const Exec& exec, const OwnedJob& job) {
  for_each(exec, job, [](float& element, float value) { element += value; });
}

void store_owned(const Exec& exec, const OwnedJob& job) {
  for (std::size_t i = 0; i < job.runs.host.size(); ++i) reference::store_owned(exec, job.run(i));
  if (!job.runs.host.empty()) return;
  for_each(exec, job, [](float& element, float value) {
    if (std::isfinite(value)) element = value;
  });
}

void write_owned(const Exec& exec, const OwnedJob& job, float factor, std::uint32_t* not_finite) {
  for_each(exec, job, [&](float& element, float value) {
    element = value * factor;
    if (!std::isfinite(element)) *not_finite = 1;
  });
}

void take_owned(const Exec&, const OwnedJob& job, std::span<float> taken) {
  for (std::uint64_t j = 0; j < job.size(); ++j) {
    float* const element = element_of(job, j);
    taken[j] = element != nullptr ? *element : 0;
    if (element != nullptr) *element = 0;
  }
}

void fill_pieces(const Exec&, const Placed<PlacedSpan>& pieces, float value) {
  for (const PlacedSpan& piece : pieces.host) {
    for (float& element : piece.elements) element = value;
  }
}

}  // namespace winnow::kernels::reference
