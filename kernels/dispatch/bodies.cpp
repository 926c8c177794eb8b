// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/dispatch/bodies.hpp"

#include <algorithm>
#include <string>

#include "kernels/load.hpp"

namespace winnow::kernels {

constinit const Bodies* reference_bodies = nullptr;

const Bodies& bodies_of(const Exec& exec) {
  switch (exec.place) {
    case Place::host:
      return kCpu;
    case Place::cuda:
      return kCuda;
    case kCountedPlace:
      WINNOW_EXPECTS(exec.stream != nullptr, "only predictions run at kCountedPlace");
      return static_cast<const CountedStream*>(exec.stream)->bodies;
    case kReferencePlace:
      WINNOW_EXPECTS(reference_bodies != nullptr, "lab/reference is not linked");
      return *reference_bodies;
  }
  fail_usage("place " + std::to_string(static_cast<int>(exec.place)) + " has no bodies");
}

void load_kernels(Place place) {
  if (place == Place::cuda && kCuda.load != nullptr) kCuda.load();
}

bool holds(const Condition& condition) {
  if (condition.words == nullptr) return true;
  const std::span words(condition.words, condition.count);
  return std::ranges::any_of(words, [](std::uint32_t word) { return word != 0; }) == condition.any;
}

}  // namespace winnow::kernels
