// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/dispatch/bodies.hpp"

#include <algorithm>

namespace winnow::kernels {

const Bodies& bodies_of(const Exec& exec) {
  switch (exec.place) {
    case Place::cpu:
      return kCpu;
    case Place::cuda:
      return kCuda;
    case Place::counted:
      WINNOW_EXPECTS(exec.stream != nullptr, "only predictions run at Place::counted");
      return static_cast<const CountedStream*>(exec.stream)->bodies;
    case Place::reference:
      break;
  }
  return kReference;
}

bool holds(const Condition& condition) {
  if (condition.words == nullptr) return true;
  const std::span words(condition.words, condition.count);
  return std::ranges::any_of(words, [](std::uint32_t word) { return word != 0; }) == condition.any;
}

}  // namespace winnow::kernels
