// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string_view>
#include <utility>

#include "train/format.hpp"
#include "train/report.hpp"

namespace train {

namespace {

std::string json_string(std::string_view text) {
  std::string json = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned>(static_cast<unsigned char>(c));
    if (c == '"' || c == '\\') json += '\\';
    json += code < 0x20 ? format("\\u%04x", code) : std::string(1, c);
  }
  return json + '"';
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
  member("seed") << run.seed;
  member("compressor") << json_string(run.compressor);
  member("schedule") << json_string(run.schedule);
  member("coding") << json_string(run.coding);
  member("look_ahead") << exact(run.look_ahead);
  member("steps") << run.curve.back().step;
  member("seconds") << exact(run.curve.back().seconds);
  member("training_loss") << exact(run.curve.back().training_loss);
  member("held_out_loss") << exact(run.curve.back().held_out_loss);
  member("held_out_difference_to_dense") << exact(held_out_difference(run, report.dense(run.seed)));
  if (report.target) {
    const Point* const point = first_at(run, *report.target);
    member("steps_to_target") << (point != nullptr ? std::to_string(point->step) : "null");
    member("seconds_to_target") << exact(point != nullptr ? point->seconds : std::nan(""));
  }
  member("step_ms") << exact(kMilliseconds * (run.time.step));
  member("compute_ms") << exact(kMilliseconds * (run.time.compute));
  member("wait_ms") << exact(kMilliseconds * (run.time.wait));
  member("allreduce_ms") << exact(kMilliseconds * (run.time.allreduce));
  member("wire_bytes_per_step") << exact(run.wire_bytes_per_step);
  member("dense_wire_bytes_per_step") << exact(run.dense_wire_bytes_per_step);
  member("dense_to_wire_bytes") << exact(bytes_saved(run));
  member("parameters_hash") << json_string(
      format("%016llx", static_cast<unsigned long long>(run.parameters_hash)));
  out << "\n    }";
}

/// Means and standard deviations over the seeds.
void write_row(std::ostream& out, const RowRuns& row, const Report& report) {
  const Spread held_out = held_out_losses(row), to_dense = held_out_differences(row, report);
  Members member(out, "      ");
  member("compressor") << json_string(row.front()->compressor);
  member("schedule") << json_string(row.front()->schedule);
  member("held_out_loss") << exact(held_out.mean);
  member("held_out_loss_deviation") << exact(held_out.deviation);
  member("held_out_difference_to_dense") << exact(to_dense.mean);
  member("held_out_difference_deviation") << exact(to_dense.deviation);
  out << "\n    }";
}

}  // namespace

void write_json(std::ostream& out, const Report& report) {
  const Recipe& recipe = report.recipe;
  Members member(out, "  ");
  member("commit") << json_string(report.commit);
  member("text_source") << json_string(report.source);
  member("text_bytes") << report.text_bytes;
  member("text_fingerprint") << json_string(
      format("%016llx", static_cast<unsigned long long>(report.text_fingerprint)));
  member("seed") << recipe.seed;
  member("seeds") << report.seeds;
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
  member("warm_up") << recipe.warm_up;
  member("last_rate_share") << exact(recipe.last_rate_share);
  member("momentum") << exact(recipe.momentum);
  member("rows") << "[";
  const auto rows = report.rows();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    out << (i == 0 ? "\n    " : ",\n    ");
    write_row(out, rows[i], report);
  }
  out << "\n  ]";
  member("times") << json_string("medians over steps, each of the rank where it is largest");
  member("runs") << "[";
  for (std::size_t i = 0; i < report.runs.size(); ++i) {
    out << (i == 0 ? "\n    " : ",\n    ");
    write_run(out, report.runs[i], report);
  }
  out << "\n  ]\n}\n";
}

void write_csv(std::ostream& out, const Report& report) {
  out << "compressor,schedule,step,seconds,training_loss,held_out_loss,bytes_sent,seed\n";
  for (const Run& run : report.runs) {
    for (const Point& point : run.curve) {
      out << '"' << run.compressor << "\"," << run.schedule << ',' << point.step << ','
          << exact(point.seconds) << ',' << exact(point.training_loss) << ','
          << exact(point.held_out_loss) << ',' << point.wire_bytes << ',' << run.seed << '\n';
    }
  }
}

}  // namespace train
