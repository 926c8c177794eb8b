// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0

// Before each time is taken the stream writes zeros to more memory than the L2 cache holds: no
// kernel finds its input there, and the host enqueues the launches meanwhile. The floor is the time
// in which the copy moves 12 bytes an element: it reads gradient and residual and writes the
// residual.
#include "bench/gpu/measure_rows.hpp"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <fstream>
#include <functional>
#include <iomanip>
#include <ostream>
#include <sstream>
#include <utility>
#include <vector>

#include "kernels/cuda/memory.hpp"

namespace winnow::bench {
namespace {

constexpr double kFloorBytes = 12;

/// The seconds between two points of a stream.
class Timer {
 public:
  explicit Timer(std::size_t flush_bytes) : flush_(flush_bytes) {}

  double seconds(kernels::cuda::StreamRef stream, const std::function<void()>& work) const {
    const std::span<std::byte> flush = flush_.span();
    WINNOW_CUDA_TRY(cudaMemsetAsync(flush.data(), 0, flush.size(), stream.get()));
    begin_.record(stream);
    work();
    end_.record(stream);
    end_.synchronize();
    return end_.seconds_since(begin_);
  }

 private:
  kernels::cuda::DeviceArray<std::byte> flush_;
  kernels::cuda::Event begin_{kernels::cuda::Event::Timing::on};
  kernels::cuda::Event end_{kernels::cuda::Event::Timing::on};
};

/// The rounds of one row, and of the copy beside it.
struct Rounds {
  std::vector<double> seconds, copy_seconds;
  int repaired = 0;  ///< rounds in which a selection's bound was not good
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double seconds_of(const CudaRow& row, std::size_t turn, kernels::cuda::StreamRef stream,
                  const Timer& timer) {
  if (row.prepare) row.prepare(turn);
  return timer.seconds(stream, [&] { row.work(turn); });
}

Rounds run(const CudaRow& row, const CudaRow& copy, kernels::cuda::StreamRef stream,
           const Timer& timer, int rounds) {
  constexpr std::size_t kWarmUp = 3;
  Rounds done;
  // Warm-up rounds are rounds too: inputs rotate through them.
  for (std::size_t turn = 0; turn < kWarmUp + static_cast<std::size_t>(rounds); ++turn) {
    const double copied = seconds_of(copy, turn, stream, timer);
    const double seconds = seconds_of(row, turn, stream, timer);
    const bool repaired = row.passes && row.passes(turn) != 1;
    if (repaired && !row.may_repair) throw Error("the bound was not good");
    if (turn < kWarmUp) continue;
    done.copy_seconds.push_back(copied);
    done.seconds.push_back(seconds);
    done.repaired += repaired ? 1 : 0;
  }
  return done;
}

/// Text as JSON has it between quotes, and on one line.
std::string quoted(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '"' || c == '\\') safe += '\\';
    safe += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return '"' + safe + '"';
}

/// What is said of rows, and where to.
class Report {
 public:
  Report(const MeasureSettings& settings, std::ostream& out)
      : count_(static_cast<double>(settings.count)) {
    tables_.push_back(&out);
    std::ostringstream head;
    head << settings.device << ", " << settings.count << " float32, median of " << settings.rounds
         << " rounds\n\n| kernel | bytes/element | ms | GB/s | of copy | time / floor |\n"
         << "|---|---|---|---|---|---|\n";
    out << head.str();
    if (open(markdown_, settings.markdown)) {
      if (markdown_.tellp() == 0) markdown_ << head.str();
      tables_.push_back(&markdown_);
    }
    if (open(json_, settings.json) && json_.tellp() == 0) {
      json_ << "{\"device\": " << quoted(settings.device) << ", \"count\": " << settings.count
            << ", \"rounds\": " << settings.rounds << "}\n";
    }
  }

  void begin(std::size_t at, const CudaRow& row) {
    json_ << "{\"row\": " << at << ", \"name\": " << quoted(row.name) << std::flush;
    for (std::ostream* const table : tables_) *table << "| " << row.name << std::flush;
  }

  void measured(const CudaRow& row, const CudaRow& copy, const Rounds& rounds) {
    const double seconds = median(rounds.seconds);
    const double rate = 1e-9 * row.bytes / seconds;
    const double copy_rate = 1e-9 * copy.bytes / median(rounds.copy_seconds);
    const double floor = 1e-9 * kFloorBytes * count_ / copy_rate;
    json_ << std::setprecision(9) << ", \"bytes\": " << row.bytes
          << ", \"median_seconds\": " << seconds << ", \"least_seconds\": "
          << *std::min_element(rounds.seconds.begin(), rounds.seconds.end())
          << ", \"repaired\": " << rounds.repaired << ", \"gigabytes_per_second\": " << rate
          << ", \"of_copy\": " << rate / copy_rate << ", \"of_floor\": " << seconds / floor << "}\n"
          << std::flush;
    std::ostringstream line;
    if (rounds.repaired > 0) line << " (bound repaired in " << rounds.repaired << " rounds)";
    line << std::fixed << " | " << std::setprecision(2) << row.bytes / count_ << " | "
         << std::setprecision(3) << 1e3 * seconds << " | " << std::setprecision(0) << rate << " | "
         << std::setprecision(3) << rate / copy_rate << " | " << seconds / floor << " |\n";
    end_line(line.str());
  }

  void failed(const std::string& why) {
    json_ << ", \"failed\": " << quoted(why) << "}\n" << std::flush;
    end_line(" | FAILED: " + why + " | | | | |\n");
  }

 private:
  static bool open(std::ofstream& file, const std::string& name) {
    if (name.empty()) return false;
    file.open(name, std::ios::app);
    file.seekp(0, std::ios::end);
    if (!file) throw Error("cannot write " + name);
    return true;
  }
  void end_line(const std::string& text) {
    for (std::ostream* const table : tables_) *table << text << std::flush;
  }

  double count_;
  std::ofstream json_, markdown_;
  std::vector<std::ostream*> tables_;
};

}  // namespace

Measured measure(kernels::cuda::StreamRef stream, std::span<const CudaRow> rows,
                 const MeasureSettings& settings, std::ostream& out) {
  const Timer timer(settings.flush_bytes);
  Report report(settings, out);
  Measured result = Measured::all;
  for (std::size_t at = settings.from; at < rows.size(); ++at) {
    const CudaRow& row = rows[at];
    if (row.name.find(settings.only) == std::string::npos) continue;
    ::alarm(settings.row_seconds);
    report.begin(at, row);
    try {
      report.measured(row, rows[0], run(row, rows[0], stream, timer, settings.rounds));
    } catch (const std::exception& error) {
      report.failed(error.what());
      result = Measured::some_failed;
      // An error of a kernel stays with the process.
      if (cudaDeviceSynchronize() != cudaSuccess) return Measured::device_lost;
    }
  }
  ::alarm(0);
  return result;
}

}  // namespace winnow::bench
