// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/plan/trial.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace winnow::comm {
namespace {

constexpr std::string_view kTried = ", which is tried out";

/// "gather", "dense", "dense by Winnow's ring"
std::string_view name_of(const Bucket& plan) {
  constexpr std::string_view kComma = ", ";
  return plan.compressed == 0 && !plan.words.note.empty() ? plan.words.note.substr(kComma.size())
                                                          : std::string_view(plan.words.schedule);
}

/// The middle one, or the later of the two middle ones.
double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// "3.49 ms by gather"
std::string time_text(double seconds, const Bucket& plan) {
  std::array<char, 32> time;
  const int size = std::snprintf(time.data(), time.size(), "%.3g ms by ", 1e3 * seconds);
  return std::string(time.data(), static_cast<std::size_t>(size)).append(name_of(plan));
}

}  // namespace

Trial::Trial(std::vector<Bucket> plans, int timed, double enough)
    : plans_(std::move(plans)),
      timed_(static_cast<std::size_t>(timed)),
      enough_(enough),
      slow_(plans_.size()) {
  for (Bucket& plan : plans_) plan.words.reason += kTried;
  std::vector<std::size_t> all(enough_ > 0 ? 1 : plans_.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  begin_leg(all);
}

/// Calls by each of these plans, those of dense ones by turns.
void Trial::begin_leg(std::span<const std::size_t> plans) {
  const std::size_t calls = kSettling + timed_;
  leg_.clear();
  seconds_.clear();
  for (std::size_t i = 0; i < plans.size();) {
    const auto by_turns = [&](std::size_t at) {
      return at < plans.size() && plans_[plans[at]].compressed == 0;
    };
    std::size_t end = i + 1;
    while (by_turns(i) && by_turns(end)) ++end;
    for (std::size_t call = 0; call < calls; ++call) {
      for (std::size_t at = i; at < end; ++at) {
        leg_.push_back({.plan = plans[at], .counts = call >= kSettling});
      }
    }
    i = end;
  }
  seconds_.reserve(leg_.size());
}

/// Adds the leg's timed calls to slow_.
void Trial::end_leg(std::span<const double> of_all_ranks) {
  for (std::size_t call = 0; call < leg_.size(); ++call) {
    if (!leg_[call].counts) continue;
    double most = 0;
    for (std::size_t i = call; i < of_all_ranks.size(); i += leg_.size()) {
      most = std::max(most, of_all_ranks[i]);
    }
    slow_[leg_[call].plan].push_back(most);
  }
}

/// "took 3.49 ms by gather, 4.2 ms by dense, medians of 5 calls", of the plans that were tried.
std::string Trial::medians_text() const {
  std::string text = "took ";
  std::size_t tried = 0, least = slow_.front().size(), most = least;
  for (std::size_t way = 0; way < plans_.size(); ++way) {
    if (slow_[way].empty()) continue;
    text.append(time_text(median(slow_[way]), plans_[way])) += ", ";
    least = std::min(least, slow_[way].size());
    most = std::max(most, slow_[way].size());
    ++tried;
  }
  text.append(tried > 1 ? "medians of " : "median of ").append(std::to_string(least));
  if (most > least) text.append(" to ").append(std::to_string(most));
  return text.append(" calls");
}

Bucket* Trial::keep(std::size_t plan, std::string reason) {
  plans_[plan].words.reason = std::move(reason);
  return &plans_[plan];
}

Bucket* Trial::compare(Transport& world, const Exec& exec, Deadline deadline) {
  std::vector<double> all(seconds_.size() * static_cast<std::size_t>(world.size()));
  world.all_gather(exec, std::as_bytes(std::span(seconds_)), std::as_writable_bytes(std::span(all)),
                   deadline);
  end_leg(all);
  if (const double enough = std::exchange(enough_, 0); enough > 0) {
    if (median(slow_.front()) <= enough) {
      std::string predicted = plans_.front().words.reason;
      predicted.resize(predicted.size() - kTried.size());
      return keep(0, predicted + "; " + medians_text());
    }
    std::vector<std::size_t> others(plans_.size() - 1);
    std::iota(others.begin(), others.end(), std::size_t{1});
    begin_leg(others);
    return nullptr;
  }
  std::vector<double> costs;
  for (std::size_t way = 0; way < plans_.size(); ++way) {
    costs.push_back(median(slow_[way]) / (plans_[way].compressed > 0 ? kAhead : 1));
  }
  const auto best = static_cast<std::size_t>(std::ranges::min_element(costs) - costs.begin());
  std::vector<std::size_t> close;
  for (std::size_t way = 0; way < plans_.size(); ++way) {
    if (costs[way] <= kClose * costs[best]) close.push_back(way);
  }
  if (close.size() == 1 || ++rounds_ == kRounds) {
    return keep(best, medians_text() + std::string(plans_[best].words.note));
  }
  // To and fro: a drift of the machine's speed hits all plans alike.
  if (rounds_ % 2 == 1) std::ranges::reverse(close);
  begin_leg(close);
  return nullptr;
}

}  // namespace winnow::comm
