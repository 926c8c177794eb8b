// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "train/settings.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "train/device/device.hpp"
#include "train/exit.hpp"
#include "train/launch.hpp"

namespace train {

namespace {

constexpr int kLocalRanks = 4;

constexpr const char* kAbout =
    "Trains one byte-level language model on a text by data-parallel SGD, once per compressor\n"
    "and each time from the same start and over the same minibatches, and compares the runs.\n"
    "Start it under mpirun, or with --transport local. WINNOW_ environment variables set every\n"
    "other option of the allreduce.";

constexpr const char* kFooter =
    "The progress line goes to stderr. `auto` shows it where stderr is a terminal; under mpirun,\n"
    "which gives its ranks pipes and terminals of their own, where mpirun's stderr is one, as\n"
    "/proc tells. `always` writes plain lines where there is no terminal.\n"
    "Exit status: 0, 2 where the command line or the text is wrong, 1 where anything else fails.";

Show to_show(const std::string& word) {
  if (word == "never") return Show::never;
  return word == "always" ? Show::always : Show::automatic;
}

/// CLI11's validators return an error text.
std::string is_target(const std::string& word) {
  if (word == kDenseLoss || CLI::PositiveNumber(word).empty()) return {};
  return "'" + word + "' should be a loss above 0, or `dense`";
}

constexpr const char* kAuto = "auto";
constexpr const char* kOff = "off";

std::string is_look_ahead(const std::string& word) {
  if (word == kAuto || word == kOff || CLI::Range(0.0, 1e6)(word).empty()) return {};
  return "'" + word + "' should be auto, off, or a share from 0 on";
}

std::optional<float> to_look_ahead(const std::string& word) {
  if (word == kAuto) return std::nullopt;
  return word == kOff ? 0 : std::stof(word);
}

}  // namespace

Settings read_command_line(int argc, char** argv) {
  Settings settings;
  std::vector<std::string> compressors;
  std::string schedule;
  std::uint64_t steps = 1000, compressed_steps = 0;
  std::string look_ahead = kAuto, progress = "auto", device = "cpu",
              transport = has_mpi() ? "mpi" : "local";
  int ranks = 0;

  CLI::App app(kAbout, "train");
  app.footer(kFooter);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option(
         "--text", settings.text,
         "Any file of at least 1024 bytes (default: the novel in examples/text); every tenth "
         "block of it is held out")
      ->type_name("FILE");
  const CLI::Range step_range(std::uint64_t{1}, std::uint64_t{1'000'000'000});
  app.add_option("--steps", steps, "Steps of each run (default 1000)")
      ->type_name("N")
      ->check(step_range);
  app.add_option("--compressed-steps", compressed_steps,
                 "Steps of each run with compression (default: as --steps)")
      ->type_name("N")
      ->check(step_range);
  app.add_option("--points", settings.points,
                 "How often each run is evaluated on what is held out, the last time at its end "
                 "(default: every 50 steps, or 20 times in a short run)")
      ->type_name("N")
      ->check(step_range);
  app.add_option("--target", settings.target,
                 "A held-out loss, or `dense` for the loss at the end of runs without compression: "
                 "tells after how many steps and seconds each run has it")
      ->type_name("LOSS")
      ->check(is_target);
  app.add_option("--batch", settings.batch, "Windows a rank and step (default 32)")
      ->type_name("N")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1'000'000}));
  app.add_option("--seed", settings.seed, "Of parameters and minibatches (default 1)")
      ->type_name("N");
  app.add_option("--seeds", settings.seeds,
                 "Trains each run with so many seeds, from --seed on; the table tells mean and "
                 "standard deviation (default 1)")
      ->type_name("N")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{100}));
  app.add_option("--rate", settings.rate, "Learning rate (default 0.1)")
      ->type_name("RATE")
      ->check(CLI::PositiveNumber);
  app.add_option("--warm-up", settings.warm_up,
                 "Steps in which the learning rate rises, before it falls (default 0)")
      ->type_name("N");
  app.add_option("--momentum", settings.momentum, "Of the optimizer (default 0.9)")
      ->type_name("SHARE")
      ->check(CLI::Range(0.0, 0.999));
  app.add_option("--look-ahead", look_ahead,
                 "Where a compressed run takes its gradients: at the weights minus this share of "
                 "what the rank has not sent; auto: 1 / (ranks * (1 - momentum)) (default auto)")
      ->type_name("auto|off|SHARE")
      ->check(is_look_ahead);
  app.add_option("--compressor", compressors,
                 "One run for each that is given, by a schedule of its own if it says so (default: "
                 "none, topk:0.01@gather, topk:0.03,int4@balanced and topk:0.01,int8@balanced). "
                 "none@dense_ring sums by Winnow's ring, none by the transport's own allreduce")
      ->type_name("NAME[@SCHEDULE]")
      ->allow_extra_args(false)
      ->take_all();
  app.add_option("--schedule", schedule, "Of runs that name none (default least_bytes)")
      ->type_name("NAME");
  app.add_flag("--overlap", settings.overlap,
               "Reduce each layer's gradient while the next one's is computed");
  app.add_option("--json", settings.json, "Write settings and table here")->type_name("FILE");
  app.add_option("--csv", settings.csv, "Write the curves here")->type_name("FILE");
  app.add_option("--plot", settings.plot, "Draw the curves here, as PNG, by gnuplot")
      ->type_name("FILE");
  app.add_option("--progress", progress, "A line with the time left (default auto)")
      ->type_name("WHEN")
      ->check(CLI::IsMember({"auto", "never", "always"}));
  app.add_option("--device", device,
                 "cpu, or cuda: the model, its gradients and the optimizer on a GPU, by cuBLAS. "
                 "Ranks of a node take its GPUs in turn (default cpu)")
      ->type_name("NAME")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_flag("--nccl", settings.nccl,
               "Gradients travel over NCCL: --device cuda with a GPU for each rank");
  app.add_option("--transport", transport,
                 "mpi, or local: threads of one process (default " + transport + ")")
      ->type_name("NAME")
      ->check(CLI::IsMember({"mpi", "local"}));
  app.add_option("--ranks", ranks, "Threads of --transport local (default 4)")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    throw Exit(0, app.help());
  } catch (const CLI::ParseError& error) {
    throw Exit(kUsageStatus, error.what());
  }
  if (transport == "mpi" && !has_mpi()) {
    throw Exit(kUsageStatus, "built without MPI; use --transport local");
  }
  if (transport == "mpi" && ranks != 0) {
    throw Exit(kUsageStatus, "--ranks goes with --transport local; mpirun -n says how many");
  }
  if (device == "cuda" && !has_cuda()) throw Exit(kUsageStatus, "--device cuda: " + why_no_gpu());
  if (settings.nccl && device != "cuda") throw Exit(kUsageStatus, "--nccl needs --device cuda");
  if (compressors.empty()) {
    compressors = {"none", "topk:0.01@gather", "topk:0.03,int4@balanced",
                   "topk:0.01,int8@balanced"};
  }
  for (const std::string& text : compressors) {
    const auto at = std::min(text.find('@'), text.size());
    Row row{.compressor = text.substr(0, at),
            .schedule = at < text.size() ? text.substr(at + 1) : schedule,
            .steps = steps};
    if (row.compressor != kNone && compressed_steps != 0) row.steps = compressed_steps;
    settings.rows.push_back(row);
  }
  if (settings.target == kDenseLoss &&
      std::ranges::find(settings.rows, kNone, &Row::compressor) == settings.rows.end()) {
    throw Exit(kUsageStatus, "--target dense needs a run without compression: --compressor none");
  }
  if (!settings.target.empty() && settings.seeds > 1) {
    throw Exit(kUsageStatus, "--target tells of one seed: leave --seeds out");
  }
  settings.look_ahead = to_look_ahead(look_ahead);
  settings.progress = to_show(progress);
  settings.device = device == "cuda" ? On::cuda : On::cpu;
  settings.transport = transport == "mpi" ? Over::mpi : Over::local;
  settings.ranks = ranks != 0 ? ranks : kLocalRanks;
  return settings;
}

}  // namespace train
