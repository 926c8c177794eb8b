// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

#define WINNOW_DECLARE(name) decltype(kernels::name) name;  // NOLINT(bugprone-macro-parentheses)
#define WINNOW_BODY(name) .name = cuda::name,

namespace cuda {
WINNOW_OPERATIONS(WINNOW_DECLARE, WINNOW_DECLARE)
void copy(const Exec&, std::span<std::byte>, std::span<const std::byte>);
void place_terms(const Exec&, PlacedTerms&, std::uint64_t);
void load();
}  // namespace cuda

constinit const Bodies kCuda{.copy = cuda::copy,
                             .place_terms = cuda::place_terms,
                             .load = cuda::load,
                             WINNOW_OPERATIONS(WINNOW_BODY, WINNOW_BODY)};

}  // namespace winnow::kernels
