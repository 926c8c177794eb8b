// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/plan/trial.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>
#include <utility>

namespace winnow::comm {
namespace {

/// "3.49 ms by gather, 4.2 ms by dense, medians of 5 calls"
std::string measured_text(std::span<const Bucket> plans, std::span<const double> seconds,
                          std::size_t calls) {
  std::array<char, 160> text;
  const int size =
      std::snprintf(text.data(), text.size(),
                    "took %.3g ms by %s, %.3g ms by %s, medians of %zu calls", 1e3 * seconds[0],
                    plans[0].schedule.c_str(), 1e3 * seconds[1], plans[1].schedule.c_str(), calls);
  return {text.data(), std::min(static_cast<std::size_t>(size), text.size() - 1)};
}

}  // namespace

Trial::Trial(Bucket first, Bucket second, int timed)
    : plans_{std::move(first), std::move(second)}, timed_(static_cast<std::size_t>(timed)) {
  const std::string trial = ", which is tried out";
  for (Bucket& plan : plans_) plan.reason += trial;
  seconds_.reserve(2 * (kSettling + timed_));
}

Bucket& Trial::settle(Transport& world, const Exec& exec, Deadline deadline) {
  const std::size_t calls = seconds_.size();
  std::vector<double> all(calls * static_cast<std::size_t>(world.size()));
  world.all_gather(exec, std::as_bytes(std::span(seconds_)), std::as_writable_bytes(std::span(all)),
                   deadline);
  std::array<double, 2> medians = {};
  for (std::size_t way = 0; way < 2; ++way) {
    std::vector<double> fastest;
    for (std::size_t call = 0; call < timed_; ++call) {
      const std::size_t at = way * (kSettling + timed_) + kSettling + call;
      double least = all[at];
      for (std::size_t i = at; i < all.size(); i += calls) least = std::min(least, all[i]);
      fastest.push_back(least);
    }
    std::ranges::sort(fastest);
    medians[way] = fastest[timed_ / 2];
  }
  Bucket& best = plans_[medians[0] <= kAhead * medians[1] ? 0 : 1];
  best.reason = measured_text(plans_, medians, timed_).append(best.note);
  return best;
}

}  // namespace winnow::comm
