// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iostream>
#include <optional>

#include "comm/plan/checked_options.hpp"
#include "comm/plan/planner.hpp"
#include "comm/schedule/schedule.hpp"
#include "lab/predict/prediction.hpp"
#include "tools/winnow/commands.hpp"
#include "tools/winnow/format.hpp"
#include "tools/winnow/recipes.hpp"

namespace tool {

namespace {

using winnow::comm::Prediction;
using winnow::comm::RoundOfPrediction;
using winnow::comm::Scenario;
using winnow::comm::SimulatedTransfer;

std::string bytes_range(const RoundOfPrediction& round) {
  const std::string most = count_text(round.most_bytes);
  return round.least_bytes == round.most_bytes ? most : count_text(round.least_bytes) + "-" + most;
}

void write_rounds(const Prediction& prediction, int ranks) {
  Table table({"round", "bytes a rank sends", "from", "to"});
  for (std::size_t i = 0; i < prediction.rounds.size(); ++i) {
    const RoundOfPrediction& round = prediction.rounds[i];
    table.add(
        {std::to_string(i + 1), bytes_range(round), time_text(round.begin), time_text(round.end)});
  }
  if (!prediction.rounds.empty()) {
    std::cout << "\nRounds of " << ranks << " ranks, with the computation before each:\n"
              << table.text();
  }
}

/// Rank 0's messages, in order.
void write_transfers(const Prediction& prediction, std::size_t most) {
  Table table({"to rank", "bytes", "from", "to"});
  std::size_t all = 0;
  for (const SimulatedTransfer& transfer : prediction.transfers) {
    if (transfer.from != 0 || ++all > most) continue;
    table.add({std::to_string(transfer.to), count_text(transfer.message_bytes),
               time_text(transfer.begin), time_text(transfer.end)});
  }
  if (all == 0 || most == 0) return;
  std::cout << "\nRank 0 sends" << (all > most ? " first" : "") << ":\n" << table.text();
  if (all > most) std::cout << "and " << all - most << " more messages\n";
}

}  // namespace

void explain(const ExplainRequest& request) {
  const std::optional<Recipe> recipe =
      request.optimizer.empty() ? std::nullopt : std::optional(recipe_of(request.optimizer));
  const winnow::Options options =
      winnow::comm::checked({.compressor = recipe ? recipe->compressor : request.compressor,
                             .schedule = recipe ? recipe->schedule : request.schedule});
  Scenario scenario{.topology = winnow::Topology::parse(request.topology),
                    .links = winnow::LinkModel::parse(request.links),
                    .count = parse_count(request.count),
                    .compressor = options.compressor,
                    .schedule = options.schedule};
  const Prediction in_parts = predict(scenario);
  Scenario dense_scenario = scenario;
  dense_scenario.schedule = "dense";
  const Prediction dense = predict(dense_scenario);
  scenario.max_part = winnow::Options::kMaxPart;
  scenario.trace = request.transfers > 0;
  const Prediction prediction = predict(scenario);
  const auto& schedule = *prediction.schedule;
  const int ranks = scenario.topology.ranks();

  if (recipe) {
    std::cout << "optimizer   " << recipe->optimizers << " of torch take " << recipe->compressor
              << " over " << recipe->schedule << ":\n            "
              << "bytes a step " << recipe->fewer << ", held-out loss " << recipe->loss
              << " to dense on 4 ranks (docs/convergence.md)\n";
  }
  std::cout << "topology    " << scenario.topology.to_string() << ", " << ranks << " ranks\n"
            << "links       " << scenario.links.to_string() << '\n'
            << "bucket      " << count_text(scenario.count) << " elements of float32\n"
            << "compressor  " << options.compressor << ": rank 0 keeps " << count_text(prediction.k)
            << " elements\n"
            << "schedule    " << schedule.name << ": " << schedule.summary << '\n';
  if (schedule.name != options.schedule) std::cout << "            (" << prediction.reason << ")\n";
  write_rounds(prediction, ranks);
  write_transfers(prediction, request.transfers);

  Table table({"", "time", "busiest rank sends", "busiest uplink"});
  const auto row = [&](const std::string& name, const Prediction& one) {
    table.add(
        {name, time_text(one.seconds), count_text(one.wire_bytes), count_text(one.uplink_bytes)});
  };
  row(options.schedule, prediction);
  if (in_parts.parts > 1) {
    row(options.schedule + " in " + std::to_string(in_parts.parts) + " parts", in_parts);
  }
  row("dense ring", dense);
  std::cout << '\n'
            << table.text() << "speed-up    " << ratio_text(dense.seconds / in_parts.seconds)
            << '\n';
}

}  // namespace tool
