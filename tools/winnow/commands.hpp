// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

namespace tool {

/// Each adds one command to the program; what it does runs when the command line names it. They
/// throw winnow::UsageError where an argument makes no sense.
void add_topo(CLI::App& app);
void add_explain(CLI::App& app);
void add_simulate(CLI::App& app);

}  // namespace tool
