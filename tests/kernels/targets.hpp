// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <cstdint>
#include <vector>

namespace winnow::tests {

/// While it lives, SIMD bodies run on this Highway target.
class ChosenTarget {
 public:
  explicit ChosenTarget(std::int64_t target) { choose(target); }
  ~ChosenTarget() { choose(0); }
  ChosenTarget(const ChosenTarget&) = delete;
  ChosenTarget& operator=(const ChosenTarget&) = delete;

 private:
  static void choose(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);  // 0: all that the machine has
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

/// Runs body() on every Highway target that was compiled and that this machine supports.
template <class Body>
void for_each_target(const Body& body) {
  const std::vector<std::int64_t> targets = hwy::SupportedAndGeneratedTargets();
  ASSERT_FALSE(targets.empty());
  for (const std::int64_t target : targets) {
    SCOPED_TRACE(hwy::TargetName(target));
    const ChosenTarget chosen(target);
    body();
  }
}

}  // namespace winnow::tests
