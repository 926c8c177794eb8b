// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0

// Times the device kernels beside the device's own copy, in one run. Rounds are interleaved (copy,
// kernel, copy, ...), so that a clock that rises or falls meets both. Events on one stream take the
// times; the report gives their median. Before each kernel the stream writes zeros to more memory
// than the L2 cache holds: no kernel finds its input there, and the host enqueues the launches
// meanwhile. The floor is the time in which the copy moves 12 bytes an element: it reads gradient
// and residual and writes the residual.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iomanip>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "bench/gpu/cuda_rows.hpp"
#include "kernels/cuda/memory.hpp"
#include "kernels/cuda/stream.hpp"

namespace winnow::bench {
namespace {

constexpr int kSkipped = 77;
constexpr double kFloorBytes = 12;

/// The seconds between two points of a stream.
class Timer {
 public:
  explicit Timer(std::size_t l2_bytes) : flush_(std::max(2 * l2_bytes, kLeastFlush)) {}

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
  /// Also long enough for the host to enqueue the measured work.
  static constexpr std::size_t kLeastFlush = 256'000'000;

  kernels::cuda::DeviceArray<std::byte> flush_;
  kernels::cuda::Event begin_{kernels::cuda::Event::Timing::on};
  kernels::cuda::Event end_{kernels::cuda::Event::Timing::on};
};

/// The measurements of one row.
struct Result {
  std::string name;
  double bytes;
  std::vector<double> seconds = {};
  int repaired = 0;  ///< rounds in which a selection's bound was not good

  double median() const {
    std::vector<double> sorted = seconds;
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    return *middle;
  }
  double least() const { return *std::min_element(seconds.begin(), seconds.end()); }
  double gigabytes_per_second() const { return 1e-9 * bytes / median(); }
};

/// The results of a run; the first is the device's copy.
struct Report {
  std::string device;
  std::size_t count;
  std::vector<Result> results;

  double of_copy(const Result& result) const {
    return result.gigabytes_per_second() / results[0].gigabytes_per_second();
  }
  double of_floor(const Result& result) const {
    const double floor =
        1e-9 * kFloorBytes * static_cast<double>(count) / results[0].gigabytes_per_second();
    return result.median() / floor;
  }
  double bytes_per_element(const Result& result) const {
    return result.bytes / static_cast<double>(count);
  }
};

void write_markdown(std::ostream& out, const Report& report) {
  out << report.device << ", " << report.count << " float32, median of "
      << report.results[0].seconds.size() << " rounds\n\n"
      << "| kernel | bytes/element | ms | GB/s | of copy | time / floor |\n"
      << "|---|---|---|---|---|---|\n"
      << std::fixed;
  for (const Result& r : report.results) {
    out << "| " << r.name;
    if (r.repaired > 0) out << " (bound repaired in " << r.repaired << " rounds)";
    out << " | " << std::setprecision(2) << report.bytes_per_element(r) << " | "
        << std::setprecision(3) << 1e3 * r.median() << " | " << std::setprecision(0)
        << r.gigabytes_per_second() << " | " << std::setprecision(3) << report.of_copy(r) << " | "
        << report.of_floor(r) << " |\n";
  }
}

void write_json(std::ostream& out, const Report& report) {
  out << std::setprecision(9) << "{\n  \"device\": \"" << report.device
      << "\",\n  \"count\": " << report.count
      << ",\n  \"rounds\": " << report.results[0].seconds.size() << ",\n  \"rows\": [";
  for (const Result& r : report.results) {
    out << (&r == report.results.data() ? "" : ",") << "\n    {\"name\": \"" << r.name
        << "\", \"bytes\": " << r.bytes << ", \"median_seconds\": " << r.median()
        << ", \"least_seconds\": " << r.least() << ", \"repaired\": " << r.repaired
        << ", \"gigabytes_per_second\": " << r.gigabytes_per_second()
        << ", \"of_copy\": " << report.of_copy(r) << ", \"of_floor\": " << report.of_floor(r)
        << "}";
  }
  out << "\n  ]\n}\n";
}

/// Writes a report to a file, if `name` names one.
void write_file(const std::string& name, const Report& report,
                void (*write)(std::ostream&, const Report&)) {
  if (name.empty()) return;
  std::ofstream file(name);
  write(file, report);
  file.close();
  if (!file) throw Error("cannot write " + name);
}

struct Settings {
  std::size_t count = 100'000'000;
  double density = 0.01;
  int rounds = 51;
  std::string json, markdown;
};

int run(const Settings& settings) {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver) {
    std::cout << "no CUDA device: " << cudaGetErrorString(status) << '\n';
    return kSkipped;
  }
  WINNOW_CUDA_TRY(status);
  cudaDeviceProp properties{};
  WINNOW_CUDA_TRY(cudaGetDeviceProperties(&properties, 0));
  const kernels::cuda::Stream stream;
  const CudaRows rows(stream.get(), settings.count, settings.density,
                      static_cast<std::size_t>(properties.l2CacheSize));

  Report report{.device = properties.name, .count = settings.count, .results = {}};
  for (const CudaRow& row : rows.all()) report.results.push_back({row.name, row.bytes});
  constexpr int kWarmUp = 3;
  const Timer timer(static_cast<std::size_t>(properties.l2CacheSize));
  for (int round = -kWarmUp; round < settings.rounds; ++round) {
    for (std::size_t r = 0; r < report.results.size(); ++r) {
      const CudaRow& row = rows.all()[r];
      // Warm-up rounds are rounds too: inputs rotate through them.
      const auto turn = static_cast<std::size_t>(round + kWarmUp);
      if (row.prepare) row.prepare(turn);
      const double seconds = timer.seconds(stream, [&] { row.work(turn); });
      const bool repaired = row.passes && row.passes(turn) != 1;
      if (repaired && !row.may_repair) throw Error(row.name + ": the bound was not good");
      if (round < 0) continue;
      report.results[r].seconds.push_back(seconds);
      report.results[r].repaired += repaired ? 1 : 0;
    }
  }
  write_markdown(std::cout, report);
  write_file(settings.markdown, report, write_markdown);
  write_file(settings.json, report, write_json);
  return 0;
}

}  // namespace
}  // namespace winnow::bench

int main(int argc, char** argv) {
  winnow::bench::Settings settings;
  CLI::App app{"The device kernels beside the device's copy; exits with 77 where there is no GPU."};
  app.add_option("--count", settings.count, "elements")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--density", settings.density, "share of elements that are selected")
      ->check(CLI::Range(0.0, 1.0))
      ->check([](const std::string& share) {
        return std::strtod(share.c_str(), nullptr) > 0 ? "" : "must be above 0";
      })
      ->capture_default_str();
  app.add_option("--rounds", settings.rounds)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--out", settings.json, "write the result as JSON to this file");
  app.add_option("--markdown", settings.markdown, "write the table to this file");
  CLI11_PARSE(app, argc, argv);
  try {
    return winnow::bench::run(settings);
  } catch (const std::exception& error) {
    std::cerr << "bench_kernels_cuda: " << error.what() << '\n';
    return 1;
  }
}
