// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

namespace tool {

/// Each function adds one command to the program; the command's work runs when the command line
/// names it, and throws winnow::UsageError if an argument makes no sense.
void add_topo(CLI::App& app);
void add_explain(CLI::App& app);
void add_simulate(CLI::App& app);

}  // namespace tool
