// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

#define WINNOW_DECLARE(name) decltype(kernels::name) name;  // NOLINT(bugprone-macro-parentheses)
#define WINNOW_BODY(name) .name = reference::name,

namespace reference {
WINNOW_OPERATIONS(WINNOW_DECLARE, WINNOW_DECLARE)
void copy(const Exec&, std::span<std::byte>, std::span<const std::byte>);
void place_terms(const Exec&, PlacedTerms&, std::uint64_t);
}  // namespace reference

constinit const Bodies kReference{.copy = reference::copy,
                                  .place_terms = reference::place_terms,
                                  WINNOW_OPERATIONS(WINNOW_BODY, WINNOW_BODY)};

}  // namespace winnow::kernels
