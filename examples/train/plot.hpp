// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "train/report.hpp"

namespace train {

/// Throws Exit(kUsageStatus) where gnuplot cannot be run.
void require_gnuplot();

/// Draws held-out loss against steps and against bytes sent, as a PNG file.
/// Throws Exit(kFailureStatus) where gnuplot fails.
void draw_curves(const std::string& path, const Report& report);

}  // namespace train
