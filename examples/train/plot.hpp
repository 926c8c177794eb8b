// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "train/report.hpp"

namespace train {

/// Throws Exit(kUsageStatus) if gnuplot cannot run.
void require_gnuplot();

/// A gnuplot script that draws held-out loss against steps and, beside it, against bytes sent; if
/// the report has a target, also against seconds of training.
std::string plot_script(const std::string& path, const Report& report);

/// Draws the plot as a PNG file. Throws Exit(kFailureStatus) if gnuplot fails.
void draw_curves(const std::string& path, const Report& report);

}  // namespace train
