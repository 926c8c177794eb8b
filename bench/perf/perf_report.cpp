// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/perf/perf_report.hpp"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>

namespace winnow::bench {
namespace {

template <class... Values>
std::string formatted(const char* format, Values... values) {
  const int length = std::snprintf(nullptr, 0, format, values...);
  std::string text(static_cast<std::size_t>(length) + 1, '\0');
  std::snprintf(text.data(), text.size(), format, values...);
  text.pop_back();
  return text;
}

/// As many digits after the point as fit the width.
std::string fitted(double value, int width) {
  const double room = std::pow(10.0, width - 3);
  return formatted("%*.*f", width, value < room ? 2 : (value < 10 * room ? 1 : 0), value);
}

std::string text_of(const PerfRow& row, const PerfHalf& half, std::size_t ranks) {
  const std::string wrong =
      half.wrong ? formatted("%6" PRIu64, *half.wrong) : std::string("   N/A");
  return "  " + fitted(half.seconds * 1e6, 7) + "  " + fitted(algorithm_bandwidth(row, half), 6) +
         "  " + fitted(bus_bandwidth(row, half, ranks), 6) + "  " + wrong;
}

std::string optional_text(const std::optional<double>& value) {
  return value ? formatted("%9.2e", *value) : std::string("      N/A");
}

std::string collective_of(const PerfSettings& settings) {
  return settings.scatters ? "reduce_scatter" : "all_reduce";
}

/// What each rank of a dense ring sends, in sizes of the input.
double ring_share(const PerfRow& row, std::size_t ranks) {
  const auto p = static_cast<double>(ranks);
  return (row.scatters ? 1 : 2) * (p - 1) / p;
}

/// Wire bytes over those of a dense ring with elements of this type.
std::optional<double> ratio(const PerfRow& row, std::size_t ranks) {
  if (row.wire_bytes == 0) return {};
  return ring_share(row, ranks) * static_cast<double>(row.size) / row.wire_bytes;
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return result + "\"";
}

std::string json_number(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? formatted("%.9g", *value) : "null";
}

std::string json_of(const PerfRow& row, const PerfHalf& half, std::size_t ranks) {
  const std::string wrong = half.wrong ? std::to_string(*half.wrong) : "null";
  return "{\"time\": " + json_number(half.seconds * 1e6) +
         ", \"alg_bw\": " + json_number(algorithm_bandwidth(row, half)) +
         ", \"bus_bw\": " + json_number(bus_bandwidth(row, half, ranks)) +
         ", \"nwrong\": " + wrong + "}";
}

/// The schedules of the calls out of place, then those of the calls in place if they differ.
std::string schedule_of(const PerfRow& row) {
  PerfHalf both = row.out_of_place;
  both.add_schedule(row.in_place.schedule);
  return both.schedule.empty() ? "-" : both.schedule;
}

std::string json_of(const PerfRow& row, std::size_t ranks) {
  std::string text = "{\"size\": " + std::to_string(row.size);
  text += ", \"count\": " + std::to_string(row.count);
  text += ", \"type\": " + quoted(row.type) + ", \"redop\": " + quoted(row.op);
  text += ", \"root\": \"-1\",\n     \"out_of_place\": " + json_of(row, row.out_of_place, ranks);
  text += ",\n     \"in_place\": " + json_of(row, row.in_place, ranks);
  text += ",\n     \"wire_bytes\": " + json_number(row.wire_bytes);
  text +=
      ", \"ratio\": " + json_number(ratio(row, ranks)) + ", \"error\": " + json_number(row.error);
  text += ", \"lost\": " + json_number(row.lost) + ", \"schedule\": " + quoted(schedule_of(row));
  text += ", \"timestamp\": " + quoted(row.timestamp);
  return text + ", \"coding\": " + quoted(row.coding) + "}";
}

/// The elements of a JSON list, one per line.
template <class Range, class Text>
std::string joined(const Range& range, const Text& text) {
  std::string all;
  for (const auto& element : range) {
    if (!all.empty()) all += ",\n    ";
    all += text(element);
  }
  return all;
}

}  // namespace

void PerfHalf::add_schedule(const std::string& one) {
  if (!one.empty() && !has_schedule(one)) schedule += (schedule.empty() ? "" : "|") + one;
}

bool PerfHalf::has_schedule(const std::string& one) const {
  return ("|" + schedule + "|").find("|" + one + "|") != std::string::npos;
}

double algorithm_bandwidth(const PerfRow& row, const PerfHalf& half) {
  return static_cast<double>(row.size) / half.seconds * 1e-9;
}

double bus_bandwidth(const PerfRow& row, const PerfHalf& half, std::size_t ranks) {
  return algorithm_bandwidth(row, half) * ring_share(row, ranks);
}

double average_bus_bandwidth(const std::vector<PerfRow>& rows, std::size_t ranks) {
  double sum = 0;
  for (const PerfRow& row : rows) {
    sum += bus_bandwidth(row, row.out_of_place, ranks) + bus_bandwidth(row, row.in_place, ranks);
  }
  return rows.empty() ? 0.0 : sum / static_cast<double>(2 * rows.size());
}

std::uint64_t count_wrong(const std::vector<PerfRow>& rows) {
  std::uint64_t wrong = 0;
  for (const PerfRow& row : rows) {
    wrong += row.out_of_place.wrong.value_or(0) + row.in_place.wrong.value_or(0);
  }
  return wrong;
}

void print_header(std::ostream& out, const PerfSettings& settings, bool is_mpi,
                  const std::vector<PerfDevice>& devices) {
  const bool by_factor = settings.step_factor > 1;
  out << "# Collective test starting: allreduce_perf\n"
      << "# nThread " << (is_mpi ? 1 : settings.threads) << " nGpus "
      << (settings.memory == "host" ? 0 : 1) << " minBytes " << settings.min_bytes << " maxBytes "
      << settings.max_bytes << " step: " << (by_factor ? settings.step_factor : settings.step_bytes)
      << (by_factor ? "(factor)" : "(bytes)") << " warmup iters: " << settings.warmup_iters
      << " iters: " << settings.iters << " agg iters: 1 validation: " << settings.check
      << " graph: " << settings.graphs << " collective: " << collective_of(settings)
      << " transport: " << settings.transport << "\n# " << settings.options.to_string()
      << "\n#\n# Using devices\n";
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const PerfDevice& device = devices[rank];
    out << formatted("#  Rank %2zu Group  0 Pid %6d on %10s device %2d [%s memory]\n", rank,
                     device.pid, device.host.c_str(), std::max(device.number, 0),
                     settings.memory.c_str());
  }
  for (const std::string& note : settings.notes) out << "# " << note << '\n';
  const char* line =
      "# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s"
      "  %10s  %7s  %9s  %9s  %s%s\n";
  const char* const timestamp = settings.timestamps == 1 ? "  timestamp" : "";
  out << "#\n"
      << formatted(
             "# %10s  %12s  %8s  %6s  %6s           out-of-place                       in-place\n",
             "", "", "", "", "")
      << formatted(line, "size", "count", "type", "redop", "root", "time", "algbw", "busbw",
                   "#wrong", "time", "algbw", "busbw", "#wrong", "wire", "ratio", "error", "lost",
                   "schedule", timestamp)
      << formatted(line, "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)",
                   "(GB/s)", "(GB/s)", "", "(B)", "", "", "", "", "")
      << std::flush;
}

void print_row(std::ostream& out, const PerfSettings& settings, const PerfRow& row,
               std::size_t ranks) {
  const std::optional<double> saved = ratio(row, ranks);
  out << formatted("%12" PRIu64 "  %12" PRIu64 "  %8s  %6s  %6d", row.size, row.count,
                   row.type.c_str(), row.op.c_str(), -1)
      << text_of(row, row.out_of_place, ranks) << text_of(row, row.in_place, ranks)
      << formatted("  %10.0f", row.wire_bytes)
      << (saved ? "  " + fitted(*saved, 7) : std::string("      N/A")) << "  "
      << optional_text(row.error) << "  " << optional_text(row.lost) << "  " << schedule_of(row)
      << (settings.timestamps == 1 ? "  " + row.timestamp : std::string()) << std::endl;
}

void print_footer(std::ostream& out, const std::vector<PerfRow>& rows, std::size_t ranks) {
  const std::uint64_t wrong = count_wrong(rows);
  out << "# Out of bounds values : " << wrong << (wrong == 0 ? " OK" : " FAILED")
      << "\n# Avg bus bandwidth    : " << formatted("%g", average_bus_bandwidth(rows, ranks))
      << "\n#\n# Collective test concluded: allreduce_perf\n";
}

void write_json(std::ostream& out, const PerfSettings& settings,
                const std::vector<PerfDevice>& devices, const std::vector<PerfRow>& rows) {
  const std::size_t ranks = devices.size();
  const std::uint64_t wrong = count_wrong(rows);
  const bool by_factor = settings.step_factor > 1;
  out << "{\n  \"version\": 1,\n  \"args\": [" << joined(settings.arguments, quoted)
      << "],\n  \"config\": {\n    \"ranks\": " << ranks
      << ", \"minimum_bytes\": " << settings.min_bytes
      << ", \"maximum_bytes\": " << settings.max_bytes
      << (by_factor ? ", \"step_factor\": " : ", \"step_bytes\": ")
      << (by_factor ? settings.step_factor : settings.step_bytes)
      << ", \"warmup_iters\": " << settings.warmup_iters << ", \"iterations\": " << settings.iters
      << ", \"validation\": " << settings.check
      << ",\n    \"options\": " << quoted(settings.options.to_string())
      << ", \"collective\": " << quoted(collective_of(settings))
      << ", \"memory\": " << quoted(settings.memory)
      << ", \"transport\": " << quoted(settings.transport) << ",\n    \"devices\": ["
      << joined(devices,
                [](const PerfDevice& device) {
                  return "{\"pid\": " + std::to_string(device.pid) +
                         ", \"hostname\": " + quoted(device.host) +
                         ", \"device\": " + std::to_string(std::max(device.number, 0)) + "}";
                })
      << "]\n  },\n  \"results\": [\n    "
      << joined(rows, [&](const PerfRow& row) { return json_of(row, ranks); })
      << "\n  ],\n  \"out_of_bounds\": {\"count\": " << wrong
      << ", \"okay\": " << (wrong == 0 ? "true" : "false")
      << "},\n  \"average_bus_bandwidth\": {\"bandwidth\": "
      << json_number(average_bus_bandwidth(rows, ranks)) << "}\n}\n";
}

}  // namespace winnow::bench
