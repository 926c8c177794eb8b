// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>
#include <winnow/error.hpp>
#include <winnow/exec.hpp>

#include "kernels/exec/float_mode.hpp"

namespace winnow::kernels {

/// Stands where a kernel has no CUDA body.
struct NoBody {};

/// Calls the body that exec.place names, under FloatMode. The one place where kernels are
/// dispatched.
template <class Reference, class Cpu, class Cuda, class... Args>
auto dispatch(const Exec& exec, Reference reference, Cpu cpu, Cuda cuda, Args&&... args) {
  WINNOW_EXPECTS(exec.workspace == nullptr || !exec.workspace->is_device(),
                 "Exec::workspace must be of the host; that of a device is device_workspace");
  const FloatMode mode;
  switch (exec.place) {
    case Place::reference:
      return reference(exec, std::forward<Args>(args)...);
    case Place::cpu:
      return cpu(exec, std::forward<Args>(args)...);
    case Place::cuda:
      if constexpr (!std::is_same_v<Cuda, NoBody>) return cuda(exec, std::forward<Args>(args)...);
      break;
  }
  fail_usage("this kernel has no body for device memory yet; pass host memory and Place::cpu");
}

}  // namespace winnow::kernels
