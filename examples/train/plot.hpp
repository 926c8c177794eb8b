// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "train/report.hpp"

namespace train {

/// Throws Exit(kUsageStatus) where gnuplot cannot be run.
void require_gnuplot();

/// What makes gnuplot draw held-out loss against steps and, beside it, against bytes sent; where
/// the report has a target, against seconds of training.
std::string plot_script(const std::string& path, const Report& report);

/// Draws that as a PNG file.
/// Throws Exit(kFailureStatus) where gnuplot fails.
void draw_curves(const std::string& path, const Report& report);

}  // namespace train
