// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0

// Measures the rows of bench_kernels_cuda on the model of a device: each row must do its work round
// after round, and select by good bounds; and a row that fails, or ends the process, costs no
// other.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>
#include <winnow/error.hpp>

#include "bench/gpu/cuda_inputs.hpp"
#include "bench/gpu/measure_rows.hpp"
#include "kernels/cuda/stream.hpp"

namespace winnow::bench {

/// The rivals are CUB's, which the model lacks.
void add_rival_rows(const CudaInputs&, std::vector<CudaRow>&) {}

namespace {

constexpr std::size_t kCount = 9000;

void expect(bool holds, const std::string& what) {
  if (!holds) throw Error(what);
}

std::string text_of(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

MeasureSettings settings_in(const std::filesystem::path& file) {
  return {.device = "model",
          .count = kCount,
          .rounds = 1,
          .flush_bytes = 1 << 16,
          .json = file.string() + ".json",
          .markdown = file.string() + ".md"};
}

void all_rows(const std::filesystem::path& folder) {
  const kernels::cuda::Stream stream;
  const CudaRows rows(stream.get(), kCount, 0.01, 1 << 16);
  std::ostringstream table;
  expect(measure(stream, rows.all(), settings_in(folder / "rows"), table) == Measured::all,
         "failed:\n" + table.str());
  std::cout << rows.all().size() << " rows\n";
}

std::vector<CudaRow> invented_rows(const std::function<void(std::size_t)>& bad) {
  const auto nothing = [](std::size_t) {};
  return {{"copy", 8.0 * kCount, nothing},
          {"bad", 1, bad},
          {"poor", 1, nothing, {}, [](std::size_t) { return 2U; }},
          {"good", 1, nothing}};
}

/// What is left of the row that ends a process names it.
void row_that_ends_the_process(const std::filesystem::path& folder) {
  const MeasureSettings settings = settings_in(folder / "killed");
  const pid_t child = ::fork();
  if (child == 0) {
    std::ostringstream out;
    const kernels::cuda::Stream stream;
    (void)measure(stream, invented_rows([](std::size_t) { (void)::raise(SIGKILL); }), settings,
                  out);
    ::_exit(0);
  }
  int status = 0;
  expect(::waitpid(child, &status, 0) == child && WIFSIGNALED(status), "the row ended nothing");
  for (const auto& [file, end] : {std::pair(settings.json, R"({"row": 1, "name": "bad")"),
                                  std::pair(settings.markdown, "| bad")}) {
    const std::string text = text_of(file);
    expect(text.ends_with(std::string("\n") + end), text);
  }
}

void rows_that_fail(const std::filesystem::path& folder) {
  const kernels::cuda::Stream stream;
  const MeasureSettings settings = settings_in(folder / "failed");
  std::ostringstream out;
  const auto rows = invented_rows([](std::size_t) { throw Error("a \"reason\""); });
  expect(measure(stream, rows, settings, out) == Measured::some_failed, "no row failed");
  const std::string table = text_of(settings.markdown), json = text_of(settings.json);
  expect(table == out.str(), "the file has another table");
  for (const std::string line :
       {"| bad | FAILED: a \"reason\" |", "| poor | FAILED: the bound was not good |",
        "| copy | 8.00 | ", "| good | 0.00 | "}) {
    expect(table.find("\n" + line) != std::string::npos, table);
  }
  for (const std::string line : {R"({"row": 1, "name": "bad", "failed": "a \"reason\""})"
                                 "\n",
                                 R"({"row": 3, "name": "good", "bytes": 1, )"}) {
    expect(json.find("\n" + line) != std::string::npos, json);
  }
  expect(json.ends_with("}\n"), json);

  // Another process would go on in the same files.
  MeasureSettings rest = settings;
  rest.from = 3;
  expect(measure(stream, rows, rest, out) == Measured::all, "the last row failed");
  const std::string added = text_of(settings.markdown).substr(table.size());
  expect(added.starts_with("| good | ") && added.find('\n') == added.size() - 1, added);
}

void run(const std::filesystem::path& folder) {
  row_that_ends_the_process(folder);  // it has no thread of the model yet
  all_rows(folder);
  rows_that_fail(folder);
}

}  // namespace
}  // namespace winnow::bench

int main() {
  std::string name = std::filesystem::temp_directory_path() / "rows.XXXXXX";
  int status = 0;
  try {
    if (::mkdtemp(name.data()) == nullptr) throw winnow::Error("cannot make " + name);
    winnow::bench::run(name);
  } catch (const std::exception& error) {
    std::cerr << "cuda_rows_on_model: " << error.what() << '\n';
    status = 1;
  }
  std::filesystem::remove_all(name);
  return status;
}
