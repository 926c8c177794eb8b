// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace winnow::bench {

/// The benchmarks of bench_kernels, one file each.
void register_select();
void register_add();
void register_codec();
void register_values();

/// Allocates and writes the buffers of the selection benchmarks.
void touch_select_memory();

}  // namespace winnow::bench
