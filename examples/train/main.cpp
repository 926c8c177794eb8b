// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
/// Trains one model on one text, once per compressor, and compares the runs. Start here:
///   settings  the command line            model, sgd  the network and its optimizer
///   launch    ranks as processes, threads  trainer     the loop: where Winnow is called
///   text      minibatches and held-out     report, plot, progress  what is told
///   device    what computes: device_cpu by Eigen, device_cuda by cuBLAS and arithmetic.cu
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <winnow/nccl.hpp>
#include <winnow/winnow.hpp>

#include "commit.hpp"
#include "train/exit.hpp"
#include "train/launch.hpp"
#include "train/plot.hpp"
#include "train/report.hpp"
#include "train/settings.hpp"
#include "train/trainer.hpp"

namespace train {
namespace {

namespace fs = std::filesystem;

/// A file to be written at the end, opened at the start: a wrong path fails before the training.
std::ofstream open_output(const std::string& path) {
  std::ofstream file;
  if (path.empty()) return file;
  file.open(path);
  if (!file) throw Exit(kUsageStatus, "cannot write " + path);
  return file;
}

struct Outputs {
  std::ofstream json, csv;
};

Outputs open_outputs(const Settings& settings) {
  if (!settings.plot.empty()) {
    require_gnuplot();
    open_output(settings.plot);
  }
  return {open_output(settings.json), open_output(settings.csv)};
}

constexpr double kRingDeadline = 600;  // seconds; any deadline makes it the ring

/// The rows compare the effect of compression on the loss, so they compress even if links are so
/// fast that "auto" would not.
winnow::Options options_for(const Row& row) {
  winnow::Options options = winnow::Options::from_environment({.schedule = "least_bytes"});
  options.compressor = row.compressor;
  if (row.schedule == kDenseRing) {
    options.schedule = "dense";
    options.deadline = kRingDeadline;
  } else if (!row.schedule.empty()) {
    options.schedule = row.schedule;
  }
  options.op = winnow::ReduceOp::average;
  return options;
}

/// Collective: if one rank lacks it, all end.
std::shared_ptr<Device<float>> device_for(const Settings& settings, int place, Group& group) {
  if (settings.device == On::cpu) return cpu_device<float>();
  const std::string why = why_no_gpu();
  const std::vector<char> missing = group.gather(static_cast<char>(!why.empty()));
  for (std::size_t rank = 0; rank < missing.size(); ++rank) {
    if (missing[rank] == 0) continue;
    throw Exit(kFailureStatus, "--device cuda: rank " + std::to_string(rank) + " has no GPU" +
                                   (why.empty() ? "" : ": " + why));
  }
  return cuda_device(place);
}

std::optional<double> target_of(const Settings& settings, const Report& report) {
  if (settings.target.empty()) return std::nullopt;
  return settings.target == kDenseLoss ? dense_loss(report) : std::stod(settings.target);
}

std::string source_name(const Settings& settings) {
  return settings.text.empty() ? kDefaultText : settings.text;
}

std::string transport_name(const Settings& settings) {
  if (settings.nccl) return "nccl";
  return settings.transport == Over::mpi ? "mpi" : "local";
}

void tell(const Settings& settings, const Report& report, Outputs& outputs) {
  write_table(std::cout, report);
  std::cout.flush();
  const auto write = [&](std::ofstream& file, const std::string& path, const auto& writer) {
    if (path.empty()) return;
    writer(file, report);
    if (!file.flush()) throw Exit(kFailureStatus, "cannot write " + path);
  };
  write(outputs.json, settings.json, write_json);
  write(outputs.csv, settings.csv, write_csv);
  if (!settings.plot.empty()) draw_curves(settings.plot, report);
}

/// Takes the next of the links' transports.
winnow::AllReducer make_reducer(const Settings& settings, const Row& row, Device<float>& device,
                                Links& links) {
  std::shared_ptr<winnow::Transport> transport = std::move(links.reducers.back());
  links.reducers.pop_back();
  if (settings.nccl) {
    const auto deadline = winnow::Deadline::after(std::chrono::minutes(1));
    transport = winnow::nccl_transport(*transport, deadline);
  }
  return winnow::AllReducer(transport, options_for(row), device.exec());
}

void run_all(const Settings& settings, Links links) {
  Group group(std::move(links.group));
  Outputs outputs;  // rank 0's
  const std::string text = group.from_first_rank([&] {
    outputs = open_outputs(settings);
    return read_text(settings.text.empty() ? default_text() : fs::path(settings.text));
  });
  Recipe recipe{.batch = settings.batch,
                .rate = settings.rate,
                .warm_up = settings.warm_up,
                .momentum = settings.momentum,
                .look_ahead = settings.look_ahead,
                .steps = settings.rows.front().steps,
                .points = settings.points,
                .seed = settings.seed,
                .overlap = settings.overlap,
                .device = device_for(settings, links.place, group)};
  const Corpus corpus(text, recipe.shape.context);

  Report report{.commit = TRAIN_COMMIT,
                .source = source_name(settings),
                .text_bytes = text.size(),
                .text_fingerprint = corpus.fingerprint(),
                .parameters = Model<float>(recipe.shape, recipe.seed).parameters().size(),
                .recipe = recipe,
                .seeds = settings.seeds,
                .ranks = group.size(),
                .transport = transport_name(settings),
                .device = settings.device == On::cuda ? "cuda" : "cpu"};
  std::uint64_t steps = 0;  // of one seed
  for (const Row& row : settings.rows) steps += row.steps;
  Progress progress(settings.progress, group.rank(), steps * settings.seeds);
  for (; recipe.seed < settings.seed + settings.seeds; ++recipe.seed) {
    // All made first: a wrong option fails at once.
    std::vector<winnow::AllReducer> reducers;
    for (const Row& row : settings.rows) {
      reducers.push_back(make_reducer(settings, row, *recipe.device, links));
    }
    report.topology = reducers.front().topology().to_string();
    for (std::size_t i = 0; i < settings.rows.size(); ++i) {
      recipe.steps = settings.rows[i].steps;
      report.runs.push_back(train(recipe, corpus, reducers[i], group, progress));
      if (settings.rows[i].schedule == kDenseRing) report.runs.back().schedule = kDenseRing;
    }
  }
  progress.finish();
  report.target = target_of(settings, report);

  group.from_first_rank([&] {
    tell(settings, report, outputs);
    return std::string();
  });
}

}  // namespace
}  // namespace train

int main(int argc, char** argv) {
  train::Settings settings;
  std::optional<train::Exit> refused;  // reported once the ranks know which of them reports it
  try {
    settings = train::read_command_line(argc, argv);
  } catch (const train::Exit& exit) {
    refused = exit;
    settings.transport = train::has_mpi() ? train::Over::mpi : train::Over::local;
  }
  const train::RankMain body = [&](train::Links links) {
    if (refused) throw train::Exit(*refused);
    train::run_all(settings, std::move(links));
  };
  const std::size_t reducers = settings.rows.size() * settings.seeds;
  return settings.transport == train::Over::mpi
             ? train::launch_mpi(reducers, body)
             : train::launch_threads(settings.ranks, reducers, body);
}
