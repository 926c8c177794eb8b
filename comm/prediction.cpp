// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/prediction.hpp"

#include <algorithm>
#include <winnow/error.hpp>
#include <winnow/options.hpp>

#include "comm/schedule.hpp"
#include "comm/size_only.hpp"

namespace winnow::comm {

namespace {

/// Merges what one rank did in a round into what all did.
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

/// The part of one parameter that nobody holds.
compress::Part make_part(const Scenario& scenario, const Schedule& schedule,
                         const compress::Compressor& compressor, const Nowhere& nowhere,
                         compress::ParameterState& state, int rank) {
  compress::Part part;
  part.count = scenario.count;
  part.pieces = {{.elements = nowhere.floats(scenario.count),
                  .parameter = &state,
                  .state = &state.pieces.front()}};
  const auto ranks = static_cast<std::uint32_t>(scenario.topology.ranks());
  if (schedule.shared_out) {
    compress::share_out(part, compressor, ranks, static_cast<std::uint32_t>(rank));
  } else {
    compress::share_out(part, compressor, 1, compress::Part::kNobody);
  }
  return part;
}

/// What all ranks of a run add to.
struct Tally {
  const Scenario& scenario;
  const Schedule& schedule;
  const Nowhere& nowhere;
  Prediction& prediction;
};

void call(const Tally& tally, SimulatedTransport& rank) {
  const Scenario& scenario = tally.scenario;
  Workspace workspace;
  const Exec exec{.workspace = &workspace};
  const Workspace::Scope scope(workspace);
  if (tally.schedule.name == "dense") {
    rank.all_reduce(exec, tally.nowhere.floats(scenario.count), ReduceOp::sum, Deadline::never());
    if (rank.rank() == 0) tally.prediction.k = scenario.count;
    return;
  }
  const SizeOnly compressor(scenario.compressor, rank, tally.nowhere);
  compress::ParameterState state{.count = scenario.count, .residual = {}, .pieces = {}};
  state.pieces.resize(1);
  compress::Part part =
      make_part(scenario, tally.schedule, compressor, tally.nowhere, state, rank.rank());
  Stats stats;
  Exchange exchange{.world = rank,
                    .compressor = compressor,
                    .exec = exec,
                    .deadline = Deadline::never(),
                    .ring = LinkModel::kNever,
                    .decay = 1,
                    .factor = 1,
                    .part = part,
                    .header = {.count = part.count, .k = part.k},
                    .random = {},
                    .stats = stats};
  Rounds rounds = tally.schedule.run(exchange);
  double begin = rank.clock();
  std::uint64_t sent = rank.bytes_sent();
  for (std::size_t number = 0; rounds.resume(); ++number) {
    rank.wait(rounds.ticket(), exchange.deadline);
    const std::uint64_t bytes = rank.bytes_sent() - sent;
    note(tally.prediction.rounds, number, {0, bytes, bytes, begin, rank.clock()});
    sent = rank.bytes_sent();
    begin = rank.clock();
  }
  std::uint64_t entries = 0;
  for (const auto& views : {exchange.messages, exchange.sums}) {
    for (const compress::MessageView& view : views) entries += view.header.k;
  }
  compressor.write(part.count, entries);
  if (rank.rank() == 0) tally.prediction.k = part.k;
}

}  // namespace

bool can_predict(const Schedule& schedule) {
  return schedule.inner == nullptr;
}

Prediction predict(const Scenario& scenario) {
  const Schedule& schedule = find_schedule(scenario.schedule);
  const auto compressor = compress::make_compressor(scenario.compressor);
  WINNOW_EXPECTS(can_predict(schedule),
                 std::string(schedule.name) +
                     " adds gradients inside nodes, which is not predicted "
                     "yet; take dense, gather, doubling, balanced or shared");
  WINNOW_EXPECTS(!compressor->any_k(), "how many elements " + scenario.compressor +
                                           " keeps is up to the gradient; take topk with the "
                                           "density that is expected of it");
  WINNOW_EXPECTS(scenario.count > 0 && scenario.count <= Options::kMaxPart,
                 "a prediction takes from 1 to " + std::to_string(Options::kMaxPart) +
                     " elements, not " + std::to_string(scenario.count));
  // A message is never longer than all elements and their indices.
  const Nowhere nowhere(
      2 * compress::message_room(scenario.count, scenario.count, compressor->codings()) +
      2 * scenario.count * sizeof(float));
  Prediction prediction;
  const SimulatedWorld world{.topology = scenario.topology,
                             .links = scenario.links,
                             .payload = SimulatedWorld::Payload::sizes,
                             .trace = scenario.trace};
  SimulatedResult result = world.run([&](const std::shared_ptr<SimulatedTransport>& rank) {
    call({scenario, schedule, nowhere, prediction}, *rank);
  });
  prediction.seconds = *std::ranges::max_element(result.seconds);
  prediction.wire_bytes = *std::ranges::max_element(result.bytes_sent);
  prediction.uplink_bytes = *std::ranges::max_element(result.uplink_bytes);
  prediction.transfers = std::move(result.transfers);
  return prediction;
}

}  // namespace winnow::comm
