// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/dispatch/bodies.hpp"

#include <algorithm>
#include <string>

#include "kernels/load.hpp"

namespace winnow::kernels {

constinit const Bodies* reference_bodies = nullptr;

const Bodies& bodies_of(const Exec& exec) {
  if (exec.place == Place::host) return kCpu;
  if (exec.place == Place::cuda) return kCuda;
  if (exec.place == kCountedPlace) {
    WINNOW_EXPECTS(exec.stream != nullptr, "only predictions run at kCountedPlace");
    return static_cast<const CountedStream*>(exec.stream)->bodies;
  }
  if (exec.place == kReferencePlace) {
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
