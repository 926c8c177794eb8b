// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "lab/predict/prediction.hpp"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>
#include <winnow/error.hpp>

#include "comm/plan/planner.hpp"
#include "comm/schedule/pipeline.hpp"
#include "comm/schedule/schedule.hpp"
#include "comm/schedule/shards.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/memory_ops.hpp"
#include "lab/predict/counted.hpp"

namespace winnow::comm {

namespace {

/// Merges one rank's part of a round into the round of all ranks.
void note(std::vector<RoundOfPrediction>& rounds, std::size_t number,
          const RoundOfPrediction& mine) {
  if (rounds.size() <= number) {
    rounds.resize(number + 1);
    rounds[number] = mine;
    return;
  }
  RoundOfPrediction& all = rounds[number];
  all.messages += mine.messages;
  all.least_bytes = std::min(all.least_bytes, mine.least_bytes);
  all.most_bytes = std::max(all.most_bytes, mine.most_bytes);
  all.begin = std::min(all.begin, mine.begin);
  all.end = std::max(all.end, mine.end);
}

/// The results to which all ranks of a run add.
struct Tally {
  const Scenario& scenario;
  const Schedule& schedule;
  const compress::Compressor& compressor;
  Prediction& prediction;
};

/// One rank's part of a bucket, after the first step.
class PartOfCall {
 public:
  PartOfCall(const Tally& tally, const Exec& exec, std::uint64_t count, int rank) {
    state_.count = part.count = count;
    state_.residual_memory = &kCountedMemory;
    state_.pieces.resize(1);
    part.pieces = {{.elements = exec.device_workspace->take<float>(count),
                    .parameter = &state_,
                    .state = &state_.pieces.front()}};
    compress::make_residual(exec, *part.pieces.front().parameter);
    const Topology& topology = tally.scenario.topology;
    share_out(part, tally.schedule, tally.compressor, topology.ranks(), rank);
    if (tally.schedule.inner != nullptr) {
      shards = cut_shards(part, topology, rank, *tally.schedule.inner, tally.compressor);
      for (Shard& shard : shards.of_rail) shard.bounds = compress::make_bounds(exec, shard.states);
    }
  }
  PartOfCall(const PartOfCall&) = delete;
  PartOfCall& operator=(const PartOfCall&) = delete;

  /// Elements that this rank keeps of its node's sums.
  std::uint64_t served_k(const Rails& rails) const {
    std::uint64_t k = 0;
    for (std::size_t rail = 0; rail < shards.of_rail.size(); ++rail) {
      if (rails.transport(rail) != nullptr) k += shards.of_rail[rail].part.k;
    }
    return k;
  }

  compress::Part part;
  Shards shards;

 private:
  compress::ParameterState state_;
};

/// A sum that lies beside the elements is copied.
bool write(Exchange& exchange) {
  if (!std::holds_alternative<WholeSum>(exchange.result.outcome)) return write_outcome(exchange);
  kernels::copy(exchange.exec, exchange.part.pieces.front().elements.floats(), sum_of(exchange));
  return true;
}

/// Runs a bucket in one part and notes its rounds.
void run_whole(const Tally& tally, SimulatedTransport& rank, Exchange& exchange) {
  Rounds rounds = tally.schedule.run_part(exchange);
  double begin = rank.clock();
  std::uint64_t sent = rank.bytes_sent();
  for (std::size_t number = 0; rounds.resume(); ++number) {
    rank.wait(rounds.ticket(), exchange.wire.deadline);
    const std::uint64_t bytes = rank.bytes_sent() - sent;
    note(tally.prediction.rounds, number, {0, bytes, bytes, begin, rank.clock()});
    sent = rank.bytes_sent();
    begin = rank.clock();
  }
  write(exchange);
}

void call(const Tally& tally, SimulatedTransport& rank) {
  const Scenario& scenario = tally.scenario;
  const CountedPlace place(rank, tally.compressor.codings());
  const Exec& exec = place.exec();
  const kernels::ScratchScope scope(exec);
  if (tally.schedule.name == "dense") {
    rank.all_reduce(exec, kernels::scratch_of(exec).take<float>(scenario.count), ReduceOp::sum,
                    Deadline::never());
    if (rank.rank() == 0) tally.prediction.k = scenario.count;
    return;
  }
  const World world{rank.size(), rank.rank(), &scenario.topology, scenario.links};
  const std::uint64_t longest =
      scenario.max_part == Options::kAutomatic
          ? longest_part(tally.schedule, world, tally.compressor, scenario.count)
          : scenario.max_part;
  Stats stats;
  std::optional<Rails> rails;
  if (tally.schedule.inner != nullptr) rails.emplace(rank, scenario.topology);
  std::deque<PartOfCall> parts;
  std::vector<Exchange> exchanges;
  std::uint64_t k = 0;
  for (std::uint64_t begin = 0; begin < scenario.count; begin += longest) {
    PartOfCall& of_call =
        parts.emplace_back(tally, exec, std::min(longest, scenario.count - begin), rank.rank());
    compress::Part& part = of_call.part;
    k += rails ? of_call.served_k(*rails) : part.k;
    exchanges.push_back({.wire = {.world = rank, .deadline = Deadline::never(), .stats = stats},
                         .levels = {.rails = rails ? &*rails : nullptr,
                                    .shards = rails ? &of_call.shards : nullptr},
                         .compressor = tally.compressor,
                         .exec = exec,
                         .scaling = {.decay = 1, .factor = 1},
                         .course = {.ring = LinkModel::kNever},
                         .part = part,
                         .header = {.count = part.count, .k = part.k},
                         .random = {}});
  }
  for (PartOfCall& part : parts) part.shards.parts = parts.size();
  if (exchanges.size() == 1) {
    run_whole(tally, rank, exchanges.front());
  } else {
    const std::vector<const Schedule*> schedules(exchanges.size(), &tally.schedule);
    run_parts(schedules, exchanges, write);
  }
  if (rank.rank() != 0) return;
  tally.prediction.k = k;
  tally.prediction.parts = exchanges.size();
}

/// A scenario that makes sense, and what the planner makes of it.
struct Planned {
  std::unique_ptr<compress::Compressor> compressor;
  World world;
  CostShape shape;
  Choice choice;

  explicit Planned(const Scenario& scenario)
      : compressor(compress::make_compressor(scenario.compressor)),
        world{scenario.topology.ranks(), 0, &scenario.topology, scenario.links} {
    WINNOW_EXPECTS(!compressor->variable_k(),
                   "how many elements " + scenario.compressor +
                       " keeps is up to the gradient; take topk with the "
                       "density that is expected of it");
    WINNOW_EXPECTS(scenario.count > 0 && scenario.count <= Options::kMaxPart,
                   "a prediction takes from 1 to " + std::to_string(Options::kMaxPart) +
                       " elements, not " + std::to_string(scenario.count));
    WINNOW_EXPECTS(scenario.max_part <= Options::kMaxPart,
                   "parts of a bucket have at most " + std::to_string(Options::kMaxPart) +
                       " elements, not " + std::to_string(scenario.max_part));
    shape = {.ranks = world.ranks,
             .count = scenario.count,
             .k = compressor->kept(scenario.count),
             .codings = compressor->codings(),
             .topology = world.topology,
             .sums_k = compressor->kept_sums(scenario.count)};
    choice =
        choose_schedule({.schedule = scenario.schedule}, std::span(&shape, 1), world, *compressor);
  }
};

}  // namespace

Prediction predict(const Scenario& scenario) {
  const Planned planned(scenario);
  const Schedule& schedule = *planned.choice.schedule;
  Prediction prediction{.schedule = &schedule, .reason = planned.choice.reason};
  const SimulatedWorld world{.topology = scenario.topology,
                             .links = scenario.links,
                             .payload = SimulatedWorld::Payload::sizes,
                             .trace = scenario.trace};
  SimulatedResult result = world.run([&](const std::shared_ptr<SimulatedTransport>& rank) {
    call({scenario, schedule, *planned.compressor, prediction}, *rank);
  });
  prediction.seconds = *std::ranges::max_element(result.seconds);
  prediction.wire_bytes = *std::ranges::max_element(result.bytes_sent);
  prediction.uplink_bytes = *std::ranges::max_element(result.uplink_bytes);
  prediction.messages = *std::ranges::max_element(result.messages_sent);
  prediction.transfers = std::move(result.transfers);
  return prediction;
}

Prediction estimate(const Scenario& scenario) {
  const Planned planned(scenario);
  const auto& [compressor, world, shape, choice] = planned;
  WINNOW_EXPECTS(scenario.max_part == Options::kAutomatic,
                 "an estimate is of the parts that the planner takes by itself");
  const Schedule& schedule = *choice.schedule;
  const std::uint64_t longest = longest_part(schedule, world, *compressor, scenario.count);
  const std::uint64_t parts =
      schedule.name == "dense" ? 1 : (scenario.count + longest - 1) / longest;
  const CostShape part = share_of(shape, parts);
  return {.schedule = &schedule,
          .reason = choice.reason,
          .seconds = estimate_in_parts(schedule, shape, world, *compressor),
          .wire_bytes = parts * schedule.wire_bytes(part),
          .uplink_bytes = parts * schedule.network_bytes(part),
          .messages = parts * schedule.messages(part),
          .k = shape.k,
          .parts = parts};
}

}  // namespace winnow::comm
