// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0

// Times the device kernels beside the device's own copy (measure_rows.hpp). Exit status: 0; 1 if a
// row failed; 3 if one failed in such a way that the process can use the device no more: the rows
// after it take another process, which --from begins there; 77 if there is no device.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>

#include "bench/gpu/cuda_rows.hpp"
#include "bench/gpu/measure_rows.hpp"
#include "kernels/cuda/stream.hpp"
#include "kernels/cuda/try.hpp"

namespace winnow::bench {
namespace {

constexpr int kSkipped = 77, kSomeFailed = 1, kDeviceLost = 3;
/// Also long enough for the host to enqueue the measured work.
constexpr std::size_t kLeastFlush = 256'000'000;

struct Settings {
  std::size_t count = 100'000'000;
  double density = 0.01;
  MeasureSettings measure;
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
  const auto l2_bytes = static_cast<std::size_t>(properties.l2CacheSize);
  const CudaRows rows(stream.get(), settings.count, settings.density, l2_bytes);

  MeasureSettings measured = settings.measure;
  measured.device = properties.name;
  measured.count = settings.count;
  measured.flush_bytes = std::max(2 * l2_bytes, kLeastFlush);
  switch (measure(stream, rows.all(), measured, std::cout)) {
    case Measured::all:
      return 0;
    case Measured::some_failed:
      return kSomeFailed;
    case Measured::device_lost:
      break;
  }
  return kDeviceLost;
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
  app.add_option("--rounds", settings.measure.rounds)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--from", settings.measure.from, "leave out so many rows");
  app.add_option("--only", settings.measure.only, "only rows with this in their names");
  app.add_option("--row-seconds", settings.measure.row_seconds,
                 "end the process if a row takes longer");
  app.add_option("--out", settings.measure.json, "append a line of JSON for each row to this file");
  app.add_option("--markdown", settings.measure.markdown, "append the table to this file");
  CLI11_PARSE(app, argc, argv);
  try {
    return winnow::bench::run(settings);
  } catch (const std::exception& error) {
    std::cerr << "bench_kernels_cuda: " << error.what() << '\n';
    return 1;
  }
}
