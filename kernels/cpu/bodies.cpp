// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

#define WINNOW_DECLARE(name) decltype(kernels::name) name;  // NOLINT(bugprone-macro-parentheses)
#define WINNOW_BODY(name) .name = cpu::name,

namespace cpu {
WINNOW_OPERATIONS(WINNOW_DECLARE, WINNOW_DECLARE)
void copy(const Exec&, std::span<std::byte>, std::span<const std::byte>);
void place_terms(const Exec&, PlacedTerms&, std::uint64_t);
}  // namespace cpu

constinit const Bodies kCpu{.copy = cpu::copy,
                            .place_terms = cpu::place_terms,
                            WINNOW_OPERATIONS(WINNOW_BODY, WINNOW_BODY)};

}  // namespace winnow::kernels
