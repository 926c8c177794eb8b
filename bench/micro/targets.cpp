// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/micro/targets.hpp"

#include <hwy/highway.h>

#include <cstdint>
#include <vector>

namespace winnow::bench {
namespace {

/// Runs kernels with one target while it lives, including the yardstick of its rounds.
class TargetScope {
 public:
  explicit TargetScope(std::int64_t target) { choose(target); }
  ~TargetScope() { choose(0); }  // 0: Highway's own choice
  TargetScope(const TargetScope&) = delete;
  TargetScope& operator=(const TargetScope&) = delete;

 private:
  static void choose(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

}  // namespace

std::string chosen_target() {
  return hwy::TargetName(hwy::SupportedAndGeneratedTargets().front());
}

void register_once(const std::string& name, const std::string& argument,
                   void (*body)(benchmark::State&)) {
  benchmark::RegisterBenchmark((name + "/" + argument).c_str(), body)
      ->Unit(benchmark::kMillisecond);
}

void register_on_targets(const std::string& name, const std::string& argument,
                         void (*body)(benchmark::State&)) {
  register_once(name, argument, body);
  const std::vector<std::int64_t> targets = hwy::SupportedAndGeneratedTargets();  // best first
  for (std::size_t i = 1; i < targets.size(); ++i) {
    std::string other = name;
    other.append(":").append(hwy::TargetName(targets[i])).append("/").append(argument);
    benchmark::RegisterBenchmark(other.c_str(), [body,
                                                 target = targets[i]](benchmark::State& state) {
      const TargetScope scope(target);
      body(state);
    })->Unit(benchmark::kMillisecond);
  }
}

}  // namespace winnow::bench
