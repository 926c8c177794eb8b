// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0

// winnow: looks at schedules without a cluster. Exit status: 0; 2 if the command line is wrong; 1
// if anything else fails.
#include <algorithm>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>
#include <winnow/error.hpp>

#include "compress/nearest.hpp"
#include "tools/winnow/commands.hpp"

namespace {

/// Throws if the first word names no command.
void expect_command(const CLI::App& app, std::string_view word) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (word.starts_with('-') || std::ranges::find(names, word) != names.end()) return;
  const std::vector<std::string_view> known(names.begin(), names.end());
  winnow::fail_usage("unknown command '" + std::string(word) + "'; did you mean '" +
                     std::string(winnow::compress::nearest_word(word, known)) + "'?");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "What a compressed allreduce does and takes, worked out without a cluster: the\n"
      "library's own schedules run over simulated ranks and links.",
      "winnow");
  app.require_subcommand(1);
  tool::add_topo(app);
  tool::add_explain(app);
  tool::add_simulate(app);
  app.footer("`winnow COMMAND --help` tells more.");
  try {
    if (argc > 1) expect_command(app, argv[1]);
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    std::cerr << "winnow: " << error.what() << '\n';
    return 2;
  } catch (const winnow::UsageError& error) {
    std::cerr << "winnow: " << error.what() << '\n';
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "winnow: " << error.what() << '\n';
    return 1;
  }
}
