// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tool {

// The commands. Each prints to stdout, and throws winnow::UsageError if an argument makes no sense.
// Only main.cpp knows of command lines.

/// Prints a topology: that of the text or, if it is empty, what the ranks discover.
void topo(const std::string& text);

struct ExplainRequest {
  std::string topology = "4x1", count = "25.6M", links;
  std::string compressor = "topk:0.01", schedule = "balanced";
  std::string optimizer;  ///< of torch, whose recipe takes the place of both; or empty
  std::size_t transfers = 8;
};
void explain(const ExplainRequest& request);

struct SimulateRequest {
  std::vector<std::string> topologies = {"2x1", "4x1", "8x1", "16x1", "32x1", "64x1"};
  std::string count = "25.6M", links, csv, plot;
  std::vector<std::string> compressors = {"topk:0.01"};
  std::vector<std::string> schedules;
};
void simulate(const SimulateRequest& request);

}  // namespace tool
