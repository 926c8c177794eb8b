// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/race/allreduce_race.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>
#include <random>
#include <winnow/winnow.hpp>

#include "bench/race/benchmarks.hpp"
#include "comm/plan/planner.hpp"
#include "comm/plan/trial.hpp"
#include "comm/schedule/schedule.hpp"
namespace winnow::bench {
namespace {

constexpr std::size_t kShifts = std::size_t{1} << 20;  // gradients in the pool
constexpr std::size_t kStride = 509'203;               // from one gradient to the next; odd
constexpr double kDeadline = 600;                      // seconds: the default, but asked for
constexpr const char* kAuto = "auto";

double seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Calls after which the plan chosen by "auto" is settled.
int calls_of_a_trial(const Options& options) {
  if (options.schedule != kAuto) return 0;
  return static_cast<int>(comm::Trial::most_calls(comm::Trial::kMostPlans, options.trial_calls)) +
         1;
}

/// The schedule that Stats must name.
std::string_view expected(const Entrant& entrant, const Topology& topology) {
  return comm::schedule_among(comm::find_schedule(entrant.schedule), &topology).name;
}

}  // namespace

std::vector<Entrant> entrants(const Rank& rank, const std::vector<std::string>& compressors,
                              const std::vector<std::uint64_t>& max_parts, std::size_t parameters) {
  std::vector<Entrant> all;
  for (std::size_t i = 0; i < rank.dense.size(); ++i) {
    all.push_back({.name = "dense/" + rank.dense[i].name, .dense = i});
  }
  for (const std::string& compressor : compressors) {
    for (const comm::Schedule* each : comm::schedules()) {
      const comm::Schedule& schedule = *each;
      // Dense sums do not depend on the compressor, and a compressor of "none" makes no other
      // sense.
      const std::string name(schedule.name);
      if ((name == "dense") != (compressor == "none")) continue;
      for (const std::uint64_t max_part : max_parts) {
        std::string full = compressor;
        full.append("/").append(name);
        if (max_part != Options::kAutomatic) full += "/max_part:" + std::to_string(max_part);
        all.push_back(
            {.name = full, .compressor = compressor, .schedule = name, .max_part = max_part});
        if (name == "dense") break;
      }
    }
    all.push_back({.name = compressor + "/auto", .compressor = compressor, .schedule = kAuto});
    if (compressor == "none" && rank.control->native_all_reduce()) {
      all.push_back({.name = "none/dense_ring",
                     .compressor = compressor,
                     .schedule = "dense",
                     .deadline = kDeadline});
    }
  }
  for (Entrant& entrant : all) {
    if (entrant.compressor.empty() || parameters == 1) continue;
    entrant.parameters = parameters;
    entrant.name += "/parameters:" + std::to_string(parameters);
  }
  return all;
}

void Race::reserve(std::size_t count) {
  if (gradient_.size() >= count) return;
  gradient_ = kernels::HostArray<float>(count);
  pool_ = kernels::HostArray<float>(count + kShifts);
  std::mt19937 random(20240229u + static_cast<unsigned>(rank_.control->rank()));
  std::normal_distribution<float> normal;
  for (float& x : pool_.span()) x = normal(random);
}

/// Normal values that no earlier gradient had at the same places, until the pool is used up.
std::span<float> Race::refill(std::size_t count) {
  shift_ = (shift_ + kStride) % kShifts;
  std::ranges::copy(pool_.span().subspan(shift_, count), gradient_.span().begin());
  return gradient_.span().first(count);
}

Outcome Race::run(const Entrant& entrant, std::size_t count, Length length) try {
  reserve(count);
  std::optional<AllReducer> reducer;
  std::vector<double> making(1);
  std::vector<std::function<void(std::span<float>)>> ways;
  for (const Dense& dense : rank_.dense) ways.push_back(dense.all_reduce);
  std::size_t place = entrant.dense;
  if (!entrant.compressor.empty()) {
    const Options options{.compressor = entrant.compressor,
                          .schedule = entrant.schedule,
                          .op = ReduceOp::sum,
                          .max_part = entrant.max_part,
                          .deadline = entrant.deadline};
    const std::shared_ptr<Transport> transport = rank_.connect();
    barrier(*rank_.control);
    making[0] = seconds([&] { reducer.emplace(transport, options); });
    making = max_over_ranks(*rank_.control, making);
    place = ways.size();
    std::vector<Segment> segments(std::min(entrant.parameters, count));
    ways.push_back([&, segments](std::span<float> gradient) mutable {
      const std::size_t all = segments.size();
      for (std::size_t i = 0; i < all; ++i) {
        const std::size_t begin = gradient.size() * i / all, end = gradient.size() * (i + 1) / all;
        segments[i] = {.elements = gradient.subspan(begin, end - begin), .id = i};
      }
      reducer->all_reduce(segments);
    });
    const int calls = std::max(length.settling, calls_of_a_trial(options));
    for (int i = 0; i < calls; ++i) ways.back()(refill(count));
  }
  for (const Dense& dense : rank_.dense) dense.all_reduce(refill(count));

  // A row of times for each way, and three for the entrant's stages.
  const auto rounds = static_cast<std::size_t>(length.rounds);
  std::vector<double> times((ways.size() + 3) * rounds);
  const auto row = [&](std::size_t i) { return std::span(times).subspan(i * rounds, rounds); };
  std::vector<std::size_t> order(ways.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937 random(20240229u);  // the same on all ranks
  for (std::size_t round = 0; round < rounds; ++round) {
    // No way always follows the same other one, whose memory is then in the caches.
    std::ranges::shuffle(order, random);
    for (const std::size_t way : order) {
      const std::span<float> gradient = refill(count);
      barrier(*rank_.control);
      row(way)[round] = seconds([&] { ways[way](gradient); });
    }
    if (!reducer) continue;
    const Stats last = reducer->last();
    row(ways.size())[round] = last.select_seconds + last.encode_seconds;
    row(ways.size() + 1)[round] = last.exchange_seconds + last.wait_seconds;
    row(ways.size() + 2)[round] = last.add_seconds;
  }
  times = max_over_ranks(*rank_.control, times);

  std::vector<double> medians;
  for (std::size_t i = 0; i < ways.size() + 3; ++i) {
    medians.emplace_back(median({row(i).begin(), row(i).end()}));
  }
  const auto dense_wire = comm::kDense.wire_bytes({rank_.control->size(), count, 0});
  Outcome outcome{
      .seconds = medians[place],
      .best_dense = *std::min_element(medians.begin(), medians.begin() + std::ssize(rank_.dense)),
      .select = medians[ways.size()],
      .exchange = medians[ways.size() + 1],
      .add = medians[ways.size() + 2],
      .making = making[0],
      .wire_bytes = dense_wire,
      .dense_wire_bytes = dense_wire,
      .kept = count};
  if (reducer) {
    const Stats& last = reducer->last();
    outcome.wire_bytes = last.wire_bytes;
    outcome.kept = last.kept;
    if (entrant.schedule == kAuto) outcome.chose = last.schedule + ", " + last.reason;
    if (entrant.schedule != kAuto && last.schedule != expected(entrant, reducer->topology())) {
      outcome.problem = "went by " + last.schedule;
    }
  }
  return outcome;
} catch (const UsageError& error) {
  return {.problem = error.what()};  // on all ranks, as is the next
} catch (const Error& error) {
  return {.problem = error.what(), .failed = true};
}

}  // namespace winnow::bench
