// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/dispatch/bodies.hpp"

#include "lab/reference/place.hpp"

namespace winnow {
namespace kernels {

#define WINNOW_DECLARE(name) decltype(kernels::name) name;  // NOLINT(bugprone-macro-parentheses)
#define WINNOW_OMIT(name)
#define WINNOW_LANES(name) .name = reference::name,
#define WINNOW_LOOPS(name) .name = kCpu.name,

namespace reference {
WINNOW_OPERATIONS(WINNOW_DECLARE, WINNOW_OMIT)
void copy(const Exec&, std::span<std::byte>, std::span<const std::byte>);
}  // namespace reference

namespace {

const Bodies& table() {
  static const Bodies bodies{.copy = reference::copy,
                             .place_terms = kCpu.place_terms,
                             WINNOW_OPERATIONS(WINNOW_LANES, WINNOW_LOOPS)};
  return bodies;
}

}  // namespace
}  // namespace kernels

Place lab::reference_place() {
  kernels::reference_bodies = &kernels::table();
  return kernels::kReferencePlace;
}

}  // namespace winnow
