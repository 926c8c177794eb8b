// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0

// Bandwidth of the device kernels beside the device's own copy in the same run. Rounds are
// interleaved (copy, kernel, copy, ...), so that clocks that rise or fall meet both; times are
// events on one stream, of which the median is reported.
#include <cuda_runtime_api.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iomanip>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/residual_add.hpp"
#include "kernels/cuda/try.hpp"

namespace winnow {
namespace {

constexpr int kSkipped = 77;

struct DeviceFree {
  void operator()(float* memory) const noexcept { (void)cudaFree(memory); }
};
using DeviceFloats = std::unique_ptr<float, DeviceFree>;

DeviceFloats allocate(std::size_t count) {
  void* memory = nullptr;
  WINNOW_CUDA_TRY(cudaMalloc(&memory, count * sizeof(float)));
  return DeviceFloats(static_cast<float*>(memory));
}

/// Numbers that differ from each other, since memory that is all zero takes less power to move.
void fill(std::span<float> device) {
  std::vector<float> pattern(std::min<std::size_t>(device.size(), std::size_t{1} << 20));
  for (std::size_t i = 0; i < pattern.size(); ++i) pattern[i] = 1.0F / static_cast<float>(i + 1);
  for (std::size_t at = 0; at < device.size(); at += pattern.size()) {
    const std::size_t count = std::min(pattern.size(), device.size() - at);
    WINNOW_CUDA_TRY(cudaMemcpy(device.data() + at, pattern.data(), count * sizeof(float),
                               cudaMemcpyHostToDevice));
  }
}

/// Seconds between two points of a stream.
class Timer {
 public:
  Timer() {
    WINNOW_CUDA_TRY(cudaEventCreate(&begin_));
    WINNOW_CUDA_TRY(cudaEventCreate(&end_));
  }
  ~Timer() {
    (void)cudaEventDestroy(begin_);
    (void)cudaEventDestroy(end_);
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  double seconds(cudaStream_t stream, const std::function<void()>& work) {
    WINNOW_CUDA_TRY(cudaEventRecord(begin_, stream));
    work();
    WINNOW_CUDA_TRY(cudaEventRecord(end_, stream));
    WINNOW_CUDA_TRY(cudaEventSynchronize(end_));
    float milliseconds = 0;
    WINNOW_CUDA_TRY(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return 1e-3 * static_cast<double>(milliseconds);
  }

 private:
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

struct Row {
  std::string name;
  double bytes;  ///< read and written in one round
  std::function<void()> work;
  std::vector<double> seconds = {};

  double median() const {
    std::vector<double> sorted = seconds;
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    return *middle;
  }
  double gigabytes_per_second() const { return 1e-9 * bytes / median(); }
};

void print(const std::string& device, std::size_t count, const std::vector<Row>& rows) {
  std::cout << device << ", " << count << " floats, median of " << rows[0].seconds.size()
            << " rounds\n"
            << std::fixed;
  for (const Row& row : rows) {
    std::cout << std::left << std::setw(24) << row.name << std::right << std::setprecision(3)
              << std::setw(10) << 1e3 * row.median() << " ms" << std::setprecision(0)
              << std::setw(8) << row.gigabytes_per_second() << " GB/s" << std::setprecision(3)
              << std::setw(8) << row.gigabytes_per_second() / rows[0].gigabytes_per_second()
              << " of copy\n";
  }
}

void write_json(std::ostream& out, const std::string& device, std::size_t count,
                const std::vector<Row>& rows) {
  out << std::setprecision(9) << "{\n  \"device\": \"" << device << "\",\n  \"count\": " << count
      << ",\n  \"rounds\": " << rows[0].seconds.size() << ",\n  \"rows\": [";
  for (const Row& row : rows) {
    out << (&row == rows.data() ? "" : ",") << "\n    {\"name\": \"" << row.name
        << "\", \"bytes\": " << row.bytes << ", \"median_seconds\": " << row.median()
        << ", \"least_seconds\": " << *std::min_element(row.seconds.begin(), row.seconds.end())
        << ", \"gigabytes_per_second\": " << row.gigabytes_per_second()
        << ", \"of_copy\": " << row.gigabytes_per_second() / rows[0].gigabytes_per_second() << "}";
  }
  out << "\n  ]\n}\n";
}

int run(std::size_t count, int rounds, const std::string& json) {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver) {
    std::cout << "no CUDA device: " << cudaGetErrorString(status) << '\n';
    return kSkipped;
  }
  WINNOW_CUDA_TRY(status);
  cudaDeviceProp properties{};
  WINNOW_CUDA_TRY(cudaGetDeviceProperties(&properties, 0));

  // One float more than count, for a gradient that does not lie as the residual does.
  const DeviceFloats residual = allocate(count), gradient = allocate(count + 1);
  const DeviceFloats target = allocate(count);
  fill({residual.get(), count});
  fill({gradient.get(), count + 1});
  cudaStream_t stream = nullptr;
  WINNOW_CUDA_TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const std::unique_ptr<CUstream_st, cudaError_t (*)(cudaStream_t)> owner(stream,
                                                                          cudaStreamDestroy);
  const Exec exec{.place = Place::cuda, .stream = stream};
  const auto floats = static_cast<double>(count * sizeof(float));

  std::vector<Row> rows;
  rows.push_back({"copy", 2 * floats, [&] {
                    WINNOW_CUDA_TRY(cudaMemcpyAsync(target.get(), gradient.get(),
                                                    count * sizeof(float), cudaMemcpyDeviceToDevice,
                                                    stream));
                  }});
  rows.push_back(
      {"residual_add", 3 * floats, [&] {
         kernels::cuda::residual_add(exec, {residual.get(), count}, {gradient.get(), count});
       }});
  rows.push_back(
      {"residual_add misaligned", 3 * floats, [&] {
         kernels::cuda::residual_add(exec, {residual.get(), count}, {gradient.get() + 1, count});
       }});

  constexpr int kWarmUp = 3;
  Timer timer;
  for (int round = -kWarmUp; round < rounds; ++round) {
    for (Row& row : rows) {
      const double seconds = timer.seconds(stream, row.work);
      if (round >= 0) row.seconds.push_back(seconds);
    }
  }
  print(properties.name, count, rows);
  if (json.empty()) return 0;
  std::ofstream file(json);
  write_json(file, properties.name, count, rows);
  file.close();
  if (!file) throw Error("cannot write " + json);
  return 0;
}

}  // namespace
}  // namespace winnow

int main(int argc, char** argv) {
  std::size_t count = 100'000'000;
  int rounds = 51;
  std::string json;
  CLI::App app{"Bandwidth of the device kernels; exits with 77 where there is no GPU."};
  app.add_option("--count", count, "elements")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--rounds", rounds)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--out", json, "write the result as JSON to this file");
  CLI11_PARSE(app, argc, argv);
  try {
    return winnow::run(count, rounds, json);
  } catch (const std::exception& error) {
    std::cerr << "bench_kernels_cuda: " << error.what() << '\n';
    return 1;
  }
}
