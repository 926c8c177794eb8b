// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

#define WINNOW_DECLARE(name) decltype(kernels::name) name;  // NOLINT(bugprone-macro-parentheses)
#define WINNOW_OMIT(name)
#define WINNOW_LANES(name) .name = cpu::name,
#define WINNOW_LOOPS(name) .name = reference::name,

namespace reference {
WINNOW_OPERATIONS(WINNOW_OMIT, WINNOW_DECLARE)
void place_terms(const Exec&, PlacedTerms&, std::uint64_t);
}  // namespace reference

namespace cpu {
WINNOW_OPERATIONS(WINNOW_DECLARE, WINNOW_OMIT)
void copy(const Exec&, std::span<std::byte>, std::span<const std::byte>);
}  // namespace cpu

constinit const Bodies kCpu{.copy = cpu::copy,
                            .place_terms = reference::place_terms,
                            WINNOW_OPERATIONS(WINNOW_LANES, WINNOW_LOOPS)};

}  // namespace winnow::kernels
