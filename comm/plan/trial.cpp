// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/plan/trial.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace winnow::comm {
namespace {

/// "gather", "dense", "dense by Winnow's ring"
std::string_view name_of(const Bucket& plan) {
  constexpr std::string_view kComma = ", ";
  return plan.compressed == 0 && !plan.note.empty() ? plan.note.substr(kComma.size())
                                                    : std::string_view(plan.schedule);
}

/// "took 3.49 ms by gather, 4.2 ms by dense, medians of 5 calls"
std::string measured_text(std::span<const Bucket> plans, std::span<const double> seconds,
                          std::size_t calls) {
  std::string text = "took ";
  for (std::size_t i = 0; i < plans.size(); ++i) {
    std::array<char, 32> time;
    const int size = std::snprintf(time.data(), time.size(), "%.3g ms by ", 1e3 * seconds[i]);
    text.append(time.data(), static_cast<std::size_t>(size)).append(name_of(plans[i])) += ", ";
  }
  return text.append("medians of ").append(std::to_string(calls)).append(" calls");
}

}  // namespace

Trial::Trial(std::vector<Bucket> plans, int timed)
    : plans_(std::move(plans)), timed_(static_cast<std::size_t>(timed)) {
  for (Bucket& plan : plans_) plan.reason += ", which is tried out";
  seconds_.reserve(plans_.size() * (kSettling + timed_));
}

Bucket& Trial::settle(Transport& world, const Exec& exec, Deadline deadline) {
  const std::size_t calls = seconds_.size();
  std::vector<double> all(calls * static_cast<std::size_t>(world.size()));
  world.all_gather(exec, std::as_bytes(std::span(seconds_)), std::as_writable_bytes(std::span(all)),
                   deadline);
  std::vector<double> medians;
  for (std::size_t way = 0; way < plans_.size(); ++way) {
    std::vector<double> slowest;
    for (std::size_t call = 0; call < timed_; ++call) {
      const std::size_t at = way * (kSettling + timed_) + kSettling + call;
      double most = 0;
      for (std::size_t i = at; i < all.size(); i += calls) most = std::max(most, all[i]);
      slowest.push_back(most);
    }
    std::ranges::sort(slowest);
    medians.push_back(slowest[timed_ / 2]);
  }
  std::size_t best = plans_.size() - 1;
  for (std::size_t way = best; way-- > 0;) {
    const bool lossy = plans_[way].compressed > 0;
    if (medians[way] <= (lossy ? kAhead : 1) * medians[best]) best = way;
  }
  plans_[best].reason = measured_text(plans_, medians, timed_).append(plans_[best].note);
  return plans_[best];
}

}  // namespace winnow::comm
