// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "train/format.hpp"
#include "train/report.hpp"
#include "train/settings.hpp"

namespace train {

namespace {

/// Writes a table whose first row is the head. Every column is as wide as its widest cell; the
/// first `left` columns are flush left.
void write_aligned(std::ostream& out, const std::vector<std::vector<std::string>>& rows,
                   std::size_t left) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string pad(widths[c] - row[c].size(), ' ');
      line += (c < left ? row[c] + pad : pad + row[c]) + (c + 1 < row.size() ? "  " : "");
    }
    out << line << '\n';
  }
}

/// "1.7203", or of several seeds "1.7203 +-0.0011".
std::string loss_cell(const RowRuns& row, const Spread& loss) {
  const std::string mean = format("%.4f", loss.mean);
  return row.size() == 1 ? mean : mean + format(" +-%.4f", loss.deviation);
}

std::string difference_cell(const RowRuns& row, const Report& report) {
  const Spread difference = held_out_differences(row, report);
  if (std::isnan(difference.mean) || row.front() == report.dense(row.front()->seed)) return "-";
  const std::string mean = format("%+.2f", difference.mean * 100);
  return mean + (row.size() == 1 ? "" : format(" +-%.2f", difference.deviation * 100)) + " %";
}

std::vector<std::string> table_row(const RowRuns& row, const Report& report) {
  const Run& first = *row.front();
  const double saved = bytes_saved(first);
  const auto time = [&](double StepTime::*part) {
    return format(
        "%.2f", spread(row, [&](const Run& run) { return kMilliseconds * (run.time.*part); }).mean);
  };
  return {first.compressor,
          first.schedule,
          loss_cell(row, training_losses(row)),
          loss_cell(row, held_out_losses(row)),
          difference_cell(row, report),
          time(&StepTime::step),
          time(&StepTime::compute),
          time(&StepTime::wait),
          time(&StepTime::allreduce),
          grouped(static_cast<std::uint64_t>(std::llround(first.wire_bytes_per_step))),
          std::isnan(saved) ? "-" : format("%.1fx", saved)};
}

/// The fewest seconds to the target among the runs without compression; NaN if none reached it.
double fastest_dense(const Report& report, double target) {
  double least = std::nan("");
  for (const Run& run : report.runs) {
    const Point* const point = first_at(run, target);
    if (run.compressor == kNone && point != nullptr) least = std::fmin(least, point->seconds);
  }
  return least;
}

std::vector<std::string> target_row(const Run& run, double target, double fastest) {
  std::vector<std::string> row = {run.compressor, run.schedule};
  if (const Point* const point = first_at(run, target)) {
    const double ratio = fastest / point->seconds;
    row.insert(row.end(),
               {grouped(point->step), format("%.2f", point->seconds),
                std::isnan(ratio) ? "-" : format("%.1fx", ratio), grouped(point->wire_bytes)});
  } else {
    row.insert(row.end(), {"not in " + grouped(run.curve.back().step), "-", "-", "-"});
  }
  // With overlap the call runs behind the computation and has no time of its own.
  const bool apart = run.time.allreduce > 0;
  row.push_back(apart ? format("%.0f %%", 100 * run.time.allreduce / run.time.step) : "-");
  return row;
}

void write_target(std::ostream& out, const Report& report, double target) {
  out << "\nHeld-out loss " << format("%.4f", target) << " was first measured after\n\n";
  std::vector<std::vector<std::string>> rows = {
      {"compressor", "schedule", "steps", "seconds", "speed-up", "bytes", "in allreduce"}};
  const double fastest = fastest_dense(report, target);
  for (const Run& run : report.runs) rows.push_back(target_row(run, target, fastest));
  write_aligned(out, rows, 2);
  out << "\nSeconds are of training: the time of evaluations, which are 20 a run or one every 50\n"
         "steps, does not count. Speed-up is over the fastest run without compression; in\n"
         "allreduce: the share of a step's time, by the medians above.\n";
}

/// As "200", or "200 to 300" if runs differ.
std::string steps_of(const std::vector<Run>& runs) {
  const auto steps = [](const Run& run) { return run.curve.back().step; };
  const auto [least, most] = std::ranges::minmax_element(runs, {}, steps);
  const std::string text = std::to_string(steps(*least));
  return steps(*least) == steps(*most) ? text : text + " to " + std::to_string(steps(*most));
}

/// As "seed 1", or "seeds 1 to 3".
std::string seeds_of(const Report& report) {
  const std::uint64_t first = report.recipe.seed;
  if (report.seeds == 1) return "seed " + std::to_string(first);
  return "seeds " + std::to_string(first) + " to " + std::to_string(first + report.seeds - 1);
}

std::string warm_up_of(const Recipe& recipe) {
  return recipe.warm_up == 0 ? "" : " after " + std::to_string(recipe.warm_up) + " steps";
}

/// The share of the compressed runs, which is the same for all.
std::string look_ahead_of(const std::vector<Run>& runs) {
  const auto ahead = std::ranges::max_element(runs, {}, &Run::look_ahead);
  return ahead->look_ahead > 0 ? format("%.4g", static_cast<double>(ahead->look_ahead)) : "off";
}

}  // namespace

void write_table(std::ostream& out, const Report& report) {
  const Recipe& recipe = report.recipe;
  out << "commit    " << report.commit << '\n'
      << "text      " << grouped(report.text_bytes) << " bytes of " << report.source << '\n'
      << "model     " << grouped(report.parameters) << " parameters, " << steps_of(report.runs)
      << " steps of " << recipe.batch << " windows a rank, " << seeds_of(report) << '\n'
      << "recipe    rate " << exact(recipe.rate) << warm_up_of(recipe) << ", momentum "
      << exact(recipe.momentum) << ", look-ahead " << look_ahead_of(report.runs) << '\n'
      << "ranks     " << report.ranks << " over " << report.transport << ", topology "
      << report.topology << (report.device == "cuda" ? ", on GPUs" : "") << "\n\n";

  std::vector<std::vector<std::string>> rows = {{"compressor", "schedule", "training", "held-out",
                                                 "to dense", "ms/step", "compute", "wait",
                                                 "allreduce", "bytes/step", "saved"}};
  for (const auto& row : report.rows()) rows.push_back(table_row(row, report));
  write_aligned(out, rows, 2);

  out << "\nLosses are nats a byte; to dense: the held-out loss against that of `none`.\n";
  if (report.seeds > 1) {
    out << "Losses are means over the seeds, with their standard deviations; those of the\n"
           "differences are of runs with the same seed.\n";
  }
  out << "Times are medians over the steps in ms, each of the rank where it is largest; wait is\n"
         "for the slowest rank's gradient. Bytes are those the busiest rank sends; saved: what a\n"
         "dense ring would send over that. All ranks hold the same parameters, bit for bit.\n";
  if (report.target) write_target(out, report, *report.target);
}

}  // namespace train
