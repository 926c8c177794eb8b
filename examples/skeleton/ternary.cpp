// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "examples/skeleton/ternary.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "examples/skeleton/ternary.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/values/levels-inl.hpp"

// The coding in lanes. LevelLanes serves all codings whose codes are integers; int2.cpp has lanes
// of its own. The reference and the device need no more than the struct.

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

CodingBody ternary_body() {
  return make_body<LevelLanes<values::Ternary>>();
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(ternary_body);

template <>
CodingBody coding_body<values::Ternary>() {
  return HWY_DYNAMIC_DISPATCH(ternary_body)();
}

}  // namespace winnow::kernels::cpu
#endif
