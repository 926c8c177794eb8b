// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <winnow/error.hpp>

#include "comm/plan/checked_options.hpp"
#include "comm/plan/planner.hpp"
#include "comm/schedule/schedule.hpp"
#include "lab/predict/prediction.hpp"
#include "tools/winnow/commands.hpp"
#include "tools/winnow/format.hpp"

namespace tool {

namespace {

using winnow::comm::Prediction;
using winnow::comm::Scenario;

/// Messages of more ranks are not simulated one by one: there are millions.
constexpr int kMostSimulated = 512;

/// One line of the table.
struct Row {
  std::string topology, name;
  int ranks;
  Prediction prediction;
  double speed_up;

  bool is_estimate() const { return ranks > kMostSimulated; }
};

Prediction prediction_of(const Scenario& scenario) {
  return scenario.topology.ranks() > kMostSimulated ? winnow::comm::estimate(scenario)
                                                    : winnow::comm::predict(scenario);
}

/// Whether a schedule of the table runs as another one of the table on this topology.
bool is_another(const std::string& name, const winnow::Topology& topology) {
  const auto& schedule = winnow::comm::find_schedule(name);
  return &winnow::comm::schedule_among(schedule, &topology) != &schedule;
}

/// On a terminal, a line that says what is being simulated, until the next one or the end.
class Progress {
 public:
  Progress() : shown_(::isatty(STDERR_FILENO) == 1) {}
  ~Progress() { show({}); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const std::string& what) const {
    if (shown_) std::cerr << '\r' << what << "\033[K" << std::flush;
  }

 private:
  bool shown_;
};

std::vector<Row> rows_of(SimulateRequest request) {
  for (std::string& compressor : request.compressors) {
    compressor = winnow::comm::checked({.compressor = compressor}).compressor;
  }
  for (std::string& schedule : request.schedules) {
    schedule = winnow::comm::checked({.schedule = schedule}).schedule;
  }
  std::vector<std::string> schedules = request.schedules;
  if (schedules.empty()) {
    for (const auto* schedule : winnow::comm::schedules()) {
      schedules.emplace_back(schedule->name);
    }
  }
  std::vector<Row> rows;
  const Progress progress;
  for (const std::string& topology : request.topologies) {
    Scenario scenario{.topology = winnow::Topology::parse(topology),
                      .links = winnow::LinkModel::parse(request.links),
                      .count = parse_count(request.count)};
    scenario.schedule = "dense";
    progress.show(topology + ": dense ring");
    const Prediction dense = prediction_of(scenario);
    const int ranks = scenario.topology.ranks();
    for (const std::string& schedule : schedules) {
      if (schedule == "dense") {
        rows.push_back({topology, "dense ring", ranks, dense, 1});
        continue;
      }
      if (request.schedules.empty() && is_another(schedule, scenario.topology)) continue;
      for (const std::string& compressor : request.compressors) {
        scenario.schedule = schedule;
        scenario.compressor = compressor;
        std::string name = compressor;
        name.append("@").append(schedule);
        progress.show(std::string(topology).append(": ").append(name));
        const Prediction prediction = prediction_of(scenario);
        rows.push_back({topology, name, ranks, prediction, dense.seconds / prediction.seconds});
      }
    }
  }
  return rows;
}

std::string table_of(const std::vector<Row>& rows) {
  Table table({"topology", "ranks", "what", "time", "to dense", "busiest rank sends", "messages",
               "busiest uplink"});
  for (const Row& row : rows) {
    table.add({row.topology, std::to_string(row.ranks), row.name,
               (row.is_estimate() ? "~ " : "") + time_text(row.prediction.seconds),
               ratio_text(row.speed_up), count_text(row.prediction.wire_bytes),
               count_text(row.prediction.messages), count_text(row.prediction.uplink_bytes)});
  }
  return table.text();
}

std::ofstream open_for_writing(const std::string& name) {
  std::ofstream file(name);
  if (!file) winnow::fail_usage("cannot write '" + name + "'");
  return file;
}

void write_csv(std::ostream& out, const std::vector<Row>& rows) {
  out << "topology,ranks,what,seconds,wire_bytes,messages,uplink_bytes\n";
  for (const Row& row : rows) {
    out << '"' << row.topology << "\"," << row.ranks << ",\"" << row.name << "\","
        << row.prediction.seconds << ',' << row.prediction.wire_bytes << ','
        << row.prediction.messages << ',' << row.prediction.uplink_bytes << '\n';
  }
}

/// Draws time against ranks, with gnuplot.
void draw(const std::string& name, const std::vector<Row>& rows) {
  open_for_writing(name).close();
  std::vector<std::string> curves;
  for (const Row& row : rows) {
    if (std::ranges::find(curves, row.name) == curves.end()) curves.push_back(row.name);
  }
  FILE* const gnuplot = ::popen("gnuplot", "w");
  if (gnuplot == nullptr) throw std::runtime_error("cannot start gnuplot");
  std::string script = "set terminal pngcairo size 900,600\nset output '";
  for (const char c : name) script += c == '\'' ? std::string("''") : std::string(1, c);
  script +=
      "'\nset logscale xy\nset xlabel 'ranks'\nset ylabel 'milliseconds'\nset key outside "
      "noenhanced\nset grid\nplot ";
  for (std::size_t i = 0; i < curves.size(); ++i) {
    if (i > 0) script += ", ";
    script.append("'-' with linespoints title \"").append(curves[i]) += '"';
  }
  script += '\n';
  for (const std::string& curve : curves) {
    for (const Row& row : rows) {
      if (row.name != curve) continue;
      script +=
          std::to_string(row.ranks) + ' ' + std::to_string(1e3 * row.prediction.seconds) + '\n';
    }
    script += "e\n";
  }
  std::fputs(script.c_str(), gnuplot);
  if (::pclose(gnuplot) != 0) throw std::runtime_error("gnuplot failed; is it installed?");
}

}  // namespace

void simulate(const SimulateRequest& request) {
  const std::vector<Row> rows = rows_of(request);
  std::cout << "links: " << winnow::LinkModel::parse(request.links).to_string() << "\n"
            << count_text(parse_count(request.count)) << " elements of float32\n\n"
            << table_of(rows);
  if (std::ranges::any_of(rows, &Row::is_estimate)) {
    std::cout << "\n~ above " << kMostSimulated
              << " ranks: by the planner's formulas, in which each message takes its link's "
                 "latency\n";
  }
  if (!request.csv.empty()) {
    std::ofstream file = open_for_writing(request.csv);
    write_csv(file, rows);
    file.close();
    if (!file) throw std::runtime_error("cannot write all rows to '" + request.csv + "'");
  }
  if (!request.plot.empty()) draw(request.plot, rows);
}

}  // namespace tool
