// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "train/report.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string_view>

#include "train/settings.hpp"

namespace train {

namespace {

/// printf into a string.
template <class... Values>
std::string format(const char* form, Values... values) {
  std::string text(static_cast<std::size_t>(std::snprintf(nullptr, 0, form, values...)), '\0');
  std::snprintf(text.data(), text.size() + 1, form, values...);
  return text;
}

/// The shortest text that reads back as the same number; JSON has no NaN.
std::string exact(double value) {
  if (!std::isfinite(value)) return "null";
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

std::string json_string(std::string_view text) {
  std::string json = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned>(static_cast<unsigned char>(c));
    if (c == '"' || c == '\\') json += '\\';
    json += code < 0x20 ? format("\\u%04x", code) : std::string(1, c);
  }
  return json + '"';
}

double milliseconds(double seconds) {
  return seconds * 1e3;
}

/// Dense bytes per byte sent; NaN if a single rank sends nothing.
double bytes_saved(const Run& run) {
  return run.wire_bytes_per_step > 0 ? run.dense_wire_bytes_per_step / run.wire_bytes_per_step
                                     : std::nan("");
}

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

std::vector<std::string> table_row(const Run& run, const Run* dense) {
  const double difference = held_out_difference(run, dense);
  const double saved = bytes_saved(run);
  return {run.compressor,
          run.schedule,
          format("%.4f", run.curve.back().training_loss),
          format("%.4f", run.curve.back().held_out_loss),
          std::isnan(difference) || &run == dense ? "-" : format("%+.2f %%", difference * 100),
          format("%.2f", milliseconds(run.time.step)),
          format("%.2f", milliseconds(run.time.compute)),
          format("%.2f", milliseconds(run.time.wait)),
          format("%.2f", milliseconds(run.time.allreduce)),
          grouped(static_cast<std::uint64_t>(std::llround(run.wire_bytes_per_step))),
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

/// Members of a JSON object, one per line.
class Members {
 public:
  Members(std::ostream& out, std::string indent) : out_(out), indent_(std::move(indent)) {}
  std::ostream& operator()(std::string_view key) {
    out_ << (first_ ? "{\n" : ",\n") << indent_ << json_string(key) << ": ";
    first_ = false;
    return out_;
  }

 private:
  std::ostream& out_;
  std::string indent_;
  bool first_ = true;
};

void write_run(std::ostream& out, const Run& run, const Report& report) {
  Members member(out, "      ");
  member("compressor") << json_string(run.compressor);
  member("schedule") << json_string(run.schedule);
  member("coding") << json_string(run.coding);
  member("steps") << run.curve.back().step;
  member("seconds") << exact(run.curve.back().seconds);
  member("training_loss") << exact(run.curve.back().training_loss);
  member("held_out_loss") << exact(run.curve.back().held_out_loss);
  member("held_out_difference_to_dense") << exact(held_out_difference(run, report.dense()));
  if (report.target) {
    const Point* const point = first_at(run, *report.target);
    member("steps_to_target") << (point != nullptr ? std::to_string(point->step) : "null");
    member("seconds_to_target") << exact(point != nullptr ? point->seconds : std::nan(""));
  }
  member("step_ms") << exact(milliseconds(run.time.step));
  member("compute_ms") << exact(milliseconds(run.time.compute));
  member("wait_ms") << exact(milliseconds(run.time.wait));
  member("allreduce_ms") << exact(milliseconds(run.time.allreduce));
  member("wire_bytes_per_step") << exact(run.wire_bytes_per_step);
  member("dense_wire_bytes_per_step") << exact(run.dense_wire_bytes_per_step);
  member("dense_to_wire_bytes") << exact(bytes_saved(run));
  member("parameters_hash") << json_string(
      format("%016llx", static_cast<unsigned long long>(run.parameters_hash)));
  out << "\n    }";
}

}  // namespace

std::string grouped(std::uint64_t value) {
  const std::string digits = std::to_string(value);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

const Run* Report::dense() const {
  const auto run = std::find_if(runs.begin(), runs.end(),
                                [](const Run& each) { return each.compressor == kNone; });
  return run != runs.end() ? &*run : nullptr;
}

double held_out_difference(const Run& run, const Run* dense) {
  if (dense == nullptr) return std::nan("");
  return run.curve.back().held_out_loss / dense->curve.back().held_out_loss - 1;
}

double dense_loss(const Report& report) {
  double most = std::nan("");
  for (const Run& run : report.runs) {
    if (run.compressor == kNone) most = std::fmax(most, run.curve.back().held_out_loss);
  }
  return most;
}

const Point* first_at(const Run& run, double loss) {
  const auto point = std::ranges::find_if(
      run.curve, [&](const Point& each) { return each.held_out_loss <= loss; });
  return point != run.curve.end() ? &*point : nullptr;
}

void write_table(std::ostream& out, const Report& report) {
  const Recipe& recipe = report.recipe;
  out << "commit    " << report.commit << '\n'
      << "text      " << grouped(report.text_bytes) << " bytes of " << report.source << '\n'
      << "model     " << grouped(report.parameters) << " parameters, " << steps_of(report.runs)
      << " steps of " << recipe.batch << " windows a rank, seed " << recipe.seed << '\n'
      << "ranks     " << report.ranks << " over " << report.transport << ", topology "
      << report.topology << (report.device == "cuda" ? ", on GPUs" : "") << "\n\n";

  std::vector<std::vector<std::string>> rows = {{"compressor", "schedule", "training", "held-out",
                                                 "to dense", "ms/step", "compute", "wait",
                                                 "allreduce", "bytes/step", "saved"}};
  for (const Run& run : report.runs) rows.push_back(table_row(run, report.dense()));
  write_aligned(out, rows, 2);

  out << "\nLosses are nats a byte; to dense: the held-out loss against that of `none`.\n"
         "Times are medians over the steps in ms, each of the rank where it is largest; wait is\n"
         "for the slowest rank's gradient. Bytes are those the busiest rank sends; saved: what a\n"
         "dense ring would send over that. All ranks hold the same parameters, bit for bit.\n";
  if (report.target) write_target(out, report, *report.target);
}

void write_json(std::ostream& out, const Report& report) {
  const Recipe& recipe = report.recipe;
  Members member(out, "  ");
  member("commit") << json_string(report.commit);
  member("text_source") << json_string(report.source);
  member("text_bytes") << report.text_bytes;
  member("text_fingerprint") << json_string(
      format("%016llx", static_cast<unsigned long long>(report.text_fingerprint)));
  member("seed") << recipe.seed;
  member("target_held_out_loss") << exact(report.target.value_or(std::nan("")));
  member("ranks") << report.ranks;
  member("transport") << json_string(report.transport);
  member("device") << json_string(report.device);
  member("topology") << json_string(report.topology);
  member("parameters") << report.parameters;
  member("context") << recipe.shape.context;
  member("embedding") << recipe.shape.embedding;
  member("hidden") << recipe.shape.hidden;
  member("batch_per_rank") << recipe.batch;
  member("rate") << exact(recipe.rate);
  member("last_rate_share") << exact(recipe.last_rate_share);
  member("momentum") << exact(recipe.momentum);
  member("times") << json_string("medians over steps, each of the rank where it is largest");
  member("runs") << "[";
  for (std::size_t i = 0; i < report.runs.size(); ++i) {
    out << (i == 0 ? "\n    " : ",\n    ");
    write_run(out, report.runs[i], report);
  }
  out << "\n  ]\n}\n";
}

void write_csv(std::ostream& out, const Report& report) {
  out << "compressor,schedule,step,seconds,training_loss,held_out_loss,bytes_sent\n";
  for (const Run& run : report.runs) {
    for (const Point& point : run.curve) {
      out << '"' << run.compressor << "\"," << run.schedule << ',' << point.step << ','
          << exact(point.seconds) << ',' << exact(point.training_loss) << ','
          << exact(point.held_out_loss) << ',' << point.wire_bytes << '\n';
    }
  }
}

}  // namespace train
