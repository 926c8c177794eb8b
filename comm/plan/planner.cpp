// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/plan/planner.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <winnow/error.hpp>

namespace winnow::comm {
namespace {

/// Weight of a byte between nodes against a byte sent to anybody, when choosing by bytes: how much
/// faster the default LinkModel is within a node.
constexpr std::uint64_t kNetworkWeight = 8;

/// A compressed schedule must be predicted to take at most this share of dense's time.
constexpr double kClearlyAhead = 0.8;
/// A schedule predicted, and then measured, to take at most this share of dense's predicted time is
/// kept without a try of dense, which would be dear.
constexpr double kBeyondDoubt = 0.25;
/// Where dense is predicted to take less, none is trusted: caches and cores decide such calls, and
/// a trial costs little.
constexpr double kCheap = 0.02;  // seconds

constexpr std::uint64_t kShortestPart = std::uint64_t{1} << 20;  // elements
constexpr std::uint64_t kShortestMessage = 16384;                // bytes

bool has_shared_nodes(const Topology* topology) {
  return topology != nullptr && topology->ranks() > topology->nodes();
}

std::uint64_t most_on_a_node(const Topology* topology) {
  return topology == nullptr ? 1 : static_cast<std::uint64_t>(topology->rails());
}

int nodes_of(const Topology* topology, int ranks) {
  return topology == nullptr ? ranks : topology->nodes();
}

template <class Cost>
auto sum_over(std::span<const CostShape> shapes, const Cost& cost) {
  decltype(cost(shapes.front())) sum{};
  for (const CostShape& shape : shapes) sum += cost(shape);
  return sum;
}

/// Bytes through the busiest port between nodes.
std::uint64_t uplink_bytes(const Schedule& schedule, const CostShape& shape, Link::Port port) {
  const std::uint64_t of_node = schedule.network_bytes(shape);
  // While a rank sends within its node, the ranks that it meets next are busy.
  return port == Link::Port::per_node ? of_node : std::min(of_node, schedule.wire_bytes(shape));
}

/// "predicted to take 1.23 ms by gather, 15.6 ms by dense"
std::string prediction_text(const Schedule& schedule, double seconds, double dense_seconds) {
  std::array<char, 160> text;
  const int size =
      std::snprintf(text.data(), text.size(), "predicted to take %.3g ms by %.*s, %.3g ms by dense",
                    1e3 * seconds, static_cast<int>(schedule.name.size()), schedule.name.data(),
                    1e3 * dense_seconds);
  return {text.data(), static_cast<std::size_t>(size)};
}

Choice fewest_bytes(std::span<const Schedule* const> candidates, std::span<const CostShape> shapes,
                    const compress::Compressor& compressor) {
  const Schedule* best = *std::ranges::min_element(candidates, {}, [&](const Schedule* schedule) {
    return sum_over(shapes, [&](const CostShape& shape) {
      return schedule->wire_bytes(shape) + kNetworkWeight * schedule->network_bytes(shape);
    });
  });
  if (best != &kDense) return {best, "fewest bytes on the wire"};
  return {best, compressor.lossless() ? compressor.name() + " sends everything"
                                      : "dense puts no more bytes on the wire"};
}

/// Seconds of one part: its passes over memory, and its messages.
struct Estimate {
  double passes, messages;
};

Estimate estimate(const Schedule& schedule, const CostShape& shape, const LinkModel& links) {
  const bool network = nodes_of(shape.topology, shape.ranks) > 1;
  const double alpha = network ? links.inter.alpha : links.intra.alpha;
  double messages = alpha * static_cast<double>(schedule.messages(shape));
  if (network) messages += links.inter.seconds(uplink_bytes(schedule, shape, links.inter.port));
  if (!network || has_shared_nodes(shape.topology)) {
    const bool own = links.intra.port == Link::Port::per_rank;
    messages += links.intra.seconds(schedule.wire_bytes(shape) *
                                    (own ? 1 : most_on_a_node(shape.topology)));
  }
  return {.passes = schedule.pass_bytes(shape) / links.pass, .messages = messages};
}

Choice least_time(std::span<const Schedule* const> candidates, std::span<const CostShape> shapes,
                  const World& world, const compress::Compressor& compressor, bool automatic) {
  const auto seconds = [&](const Schedule* schedule) {
    return sum_over(shapes, [&](const CostShape& shape) {
      return automatic ? estimate_in_parts(*schedule, shape, world, compressor)
                       : estimate_seconds(*schedule, shape, world.links);
    });
  };
  const Schedule* best = candidates.back();  // dense, if a candidate, is the first of several
  double least = seconds(best);
  for (const Schedule* candidate : candidates) {
    if (candidate == &kDense) continue;
    const double mine = seconds(candidate);
    if (mine < least) {
      best = candidate;
      least = mine;
    }
  }
  const double dense_seconds = seconds(&kDense);
  const std::string why = prediction_text(*best, least, dense_seconds);
  const bool may_be_dense = std::ranges::find(candidates, &kDense) != candidates.end();
  if (!may_be_dense) return {best, why};
  if (world.ranks == 1) return {&kDense, std::string(kOneRank)};
  const double share = least / dense_seconds;
  if (!world.trials || share >= 1) return {share <= kClearlyAhead ? best : &kDense, why};
  const bool close = share > kBeyondDoubt || dense_seconds < kCheap;
  return {best, why, close ? 0 : kBeyondDoubt * dense_seconds};
}

}  // namespace

const Schedule& schedule_among(const Schedule& schedule, const Topology* topology) {
  const bool flat = schedule.inner != nullptr && !has_shared_nodes(topology);
  return flat ? *schedule.inner : schedule;
}

double estimate_seconds(const Schedule& schedule, const CostShape& shape, const LinkModel& links) {
  const Estimate part = estimate(schedule, shape, links);
  return part.passes + part.messages;
}

double estimate_in_parts(const Schedule& schedule, const CostShape& shape, const World& world,
                         const compress::Compressor& compressor) {
  const std::uint64_t longest = longest_part(schedule, world, compressor, shape.count);
  const std::uint64_t parts = std::max<std::uint64_t>(1, (shape.count + longest - 1) / longest);
  const Estimate each = estimate(schedule, share_of(shape, parts), world.links);
  return static_cast<double>(parts) * std::max(each.passes, each.messages) +
         std::min(each.passes, each.messages);
}

std::string_view ring_note(const LinkModel& links, std::uint64_t bytes) {
  return bytes >= links.ring ? ", dense by Winnow's ring" : "";
}

Choice choose_schedule(const Options& options, std::span<const CostShape> shapes,
                       const World& world, const compress::Compressor& compressor) {
  auto candidates = find_schedules(options.schedule);
  bool flat = false;
  for (const Schedule*& candidate : candidates) {
    const Schedule& among = schedule_among(*candidate, world.topology);
    flat |= &among != candidate;
    candidate = &among;
  }
  const std::string named =
      "schedule=" + options.schedule + (flat ? ", one rank on every node" : "");
  if (candidates.size() == 1) {
    const Schedule& only = *candidates.front();
    WINNOW_EXPECTS(!only.has_own_support() || !compressor.variable_k(),
                   "schedule=" + options.schedule +
                       " needs to know how many elements travel, which " + compressor.name() +
                       " leaves to the gradient; take topk, or another schedule");
    WINNOW_EXPECTS(!only.has_own_support() || !compressor.has_sums_share(),
                   "schedule=" + options.schedule + " chooses nothing among sums, so " +
                       compressor.name() + " is for another schedule");
    WINNOW_EXPECTS(!only.codes_sums() || !compressor.one_sign(),
                   "schedule=" + options.schedule + " codes sums, whose signs differ, which " +
                       compressor.name() +
                       " cannot; take gather or doubling, or these in two levels");
  }
  // Its gradient is the sum: whatever a schedule kept back would be lost to it for nothing.
  if (world.ranks == 1 && !world.one_of_many) return {&kDense, std::string(kOneRank)};
  if (candidates.size() == 1) return {candidates.front(), named};
  if (compressor.one_sign()) {
    std::erase_if(candidates, [](const Schedule* schedule) { return schedule->codes_sums(); });
  }
  if (options.schedule == "auto" && compressor.lossless()) {
    return {&kDense, compressor.name() + " sends everything"};
  }
  if (options.schedule != "two_level" && compressor.variable_k()) {
    return {&kDense, "how many elements " + compressor.name() +
                         " keeps is up to the gradient: name a schedule for it"};
  }
  Choice choice = options.schedule == "least_bytes"
                      ? fewest_bytes(candidates, shapes, compressor)
                      : least_time(candidates, shapes, world, compressor,
                                   options.max_part == Options::kAutomatic);
  if (options.schedule == "two_level") choice.reason = named + ", " + choice.reason;
  return choice;
}

std::uint64_t longest_part(const Schedule& schedule, const World& world,
                           const compress::Compressor& compressor, std::uint64_t count) {
  const int nodes = nodes_of(world.topology, world.ranks);
  if (nodes == 1 || schedule.name == "dense") return Options::kMaxPart;
  // In two levels each rail takes a share of the part.
  const Schedule& between = schedule.inner != nullptr ? *schedule.inner : schedule;
  const bool rails = schedule.inner != nullptr && world.topology != nullptr;
  const auto shares = static_cast<std::uint64_t>(rails ? world.topology->rails() : 1);
  std::uint64_t part = kShortestPart;
  for (; part < Options::kMaxPart / 2; part *= 2) {
    if (2 * shares * (count / part + 1) > kMaxParts) continue;  // every part is at least half full
    const CostShape shape{.ranks = rails ? nodes : world.ranks,
                          .count = part / shares,
                          .k = compressor.kept(part / shares),
                          .codings = compressor.codings(),
                          .sums_k = compressor.kept_sums(part / shares)};
    if (between.wire_bytes(shape) >= kShortestMessage * between.messages(shape)) break;
  }
  return part;
}

}  // namespace winnow::comm
