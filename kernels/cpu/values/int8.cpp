// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/values/int8.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/values/levels-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

CodingBody int8_body() {
  return make_body<LevelLanes<values::Int8>>();
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(int8_body);

template <>
CodingBody coding_body<values::Int8>() {
  return HWY_DYNAMIC_DISPATCH(int8_body)();
}

}  // namespace winnow::kernels::cpu
#endif
