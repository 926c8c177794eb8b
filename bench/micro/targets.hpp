// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <benchmark/benchmark.h>

#include <string>

namespace winnow::bench {

/// The Highway target that kernels run with on this machine.
std::string chosen_target();

/// Registers `name`/`argument` with the chosen target, and `name`:TARGET/`argument` with every
/// other target of this machine.
void register_on_targets(const std::string& name, const std::string& argument,
                         void (*body)(benchmark::State&));

/// Registers `name`/`argument` with the chosen target only.
void register_once(const std::string& name, const std::string& argument,
                   void (*body)(benchmark::State&));

}  // namespace winnow::bench
