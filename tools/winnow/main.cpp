// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0

// winnow: looks at schedules without a cluster. Exit status: 0; 2 if the command line is wrong; 1
// if anything else fails.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>
#include <winnow/error.hpp>

#include "tools/winnow/commands.hpp"
#include "topology/nearest.hpp"

namespace {

constexpr const char* kCount = "elements of float32: 4194304, 25.6M, 4Mi";

/// A check for CLI11: rejects an empty text.
std::string expect_text(const std::string& text) {
  return text.empty() ? "must not be empty" : "";
}

void add_topo(CLI::App& app) {
  CLI::App* const command = app.add_subcommand(
      "topo", "Which ranks share a node: what was discovered, under mpirun, or what a text says");
  const auto text = std::make_shared<std::string>();
  command->add_option("--topology", *text, "2x4, or 3,1,2, instead of discovering")
      ->check(expect_text);
  command->callback([text] { tool::topo(*text); });
}

void add_explain(CLI::App& app) {
  CLI::App* const command = app.add_subcommand(
      "explain", "One call, round by round: who sends how much to whom, and what it takes");
  const auto request = std::make_shared<tool::ExplainRequest>();
  command->option_defaults()->always_capture_default();
  command->add_option("--topology", request->topology, "2x4, or 3,1,2: ranks on each node");
  command->add_option("--count", request->count, kCount);
  CLI::Option* const compressor =
      command->add_option("--compressor", request->compressor, "as in WINNOW_COMPRESSOR");
  CLI::Option* const schedule = command->add_option(
      "--schedule", request->schedule, "as in WINNOW_SCHEDULE: gather, two_level, auto");
  command
      ->add_option("--optimizer", request->optimizer,
                   "sgd, adam or adamw of torch: what winnow.torch.attach chooses for it, and why")
      ->excludes(compressor, schedule);
  command->add_option("--links", request->links,
                      "words of inter=LATENCY,BANDWIDTH intra=LATENCY,BANDWIDTH pass=BANDWIDTH, "
                      "such as 'inter=50us,1Gbit/s'");
  command->add_option("--transfers", request->transfers, "messages of rank 0 to list")
      ->check(CLI::Range(0, 1'000'000'000));
  command->footer(
      "Times are those of a link model, not of a machine: messages of a node share its "
      "uplink,\nand computation takes the time of its passes over memory. Rounds are those of a "
      "bucket\nin one part; between nodes long ones travel in several, which overlap.");
  command->callback([request] { tool::explain(*request); });
}

void add_simulate(CLI::App& app) {
  CLI::App* const command = app.add_subcommand(
      "simulate", "Time and bytes of every schedule on many topologies, as a table and a plot");
  const auto request = std::make_shared<tool::SimulateRequest>();
  command
      ->add_option("--topology", request->topologies,
                   "several, such as 2x1 8x4 64x8 or 3,1,2 (default 2x1 to 64x1)")
      ->delimiter('\0');
  command->add_option("--count", request->count, kCount)->capture_default_str();
  command->add_option("--compressor", request->compressors, "as in WINNOW_COMPRESSOR; several")
      ->delimiter('\0')
      ->capture_default_str();
  command->add_option("--schedule", request->schedules,
                      "dense, gather, balanced; several (default all)");
  command->add_option("--links", request->links, "as in winnow explain");
  command->add_option("--csv", request->csv, "write the rows here")->check(expect_text);
  command->add_option("--plot", request->plot, "draw time against ranks here, as PNG, by gnuplot")
      ->check(expect_text);
  command->callback([request] { tool::simulate(*request); });
}

/// Throws if the first word names no command.
void expect_command(const CLI::App& app, std::string_view word) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (word.starts_with('-') || std::ranges::find(names, word) != names.end()) return;
  const std::vector<std::string_view> known(names.begin(), names.end());
  winnow::fail_usage("unknown command '" + std::string(word) + "'; " + winnow::advice(word, known));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "What a compressed allreduce does and takes, worked out without a cluster: the\n"
      "library's own schedules run over simulated ranks and links.",
      "winnow");
  app.set_version_flag("--version", "winnow " WINNOW_VERSION);
  app.require_subcommand(1);
  add_topo(app);
  add_explain(app);
  add_simulate(app);
  app.footer("`winnow COMMAND --help` tells more.");
  try {
    if (argc > 1) expect_command(app, argv[1]);
    app.parse(argc, argv);
    std::cout.flush();
    if (!std::cout) throw std::runtime_error("cannot write to the standard output");
    return 0;
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    std::cerr << "winnow: " << error.what() << '\n';
    return 2;
  } catch (const winnow::UsageError& error) {
    std::cerr << "winnow: " << error.what() << '\n';
    return 2;
  } catch (const std::bad_alloc&) {
    std::cerr << "winnow: no memory is left for so many ranks; winnow simulate estimates what it "
                 "cannot simulate\n";
    return 1;
  } catch (const std::exception& error) {
    std::cerr << "winnow: " << error.what() << '\n';
    return 1;
  }
}
