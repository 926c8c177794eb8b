// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/values/int4.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/values/levels-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

CodingBody int4_body() {
  return make_body<LevelLanes<values::Int4>>();
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(int4_body);

template <>
CodingBody coding_body<values::Int4>() {
  return HWY_DYNAMIC_DISPATCH(int4_body)();
}

}  // namespace winnow::kernels::cpu
#endif
