// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <winnow/error.hpp>
#include <winnow/exec.hpp>

#include "kernels/call_status.hpp"
#include "kernels/checksum.hpp"
#include "kernels/dispatch/operations.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/exec/float_mode.hpp"
#include "kernels/exec/lab_places.hpp"
#include "kernels/feedback.hpp"
#include "kernels/feedback_select.hpp"
#include "kernels/finish_message.hpp"
#include "kernels/half.hpp"
#include "kernels/index_coding.hpp"
#include "kernels/memory_ops.hpp"
#include "kernels/merge.hpp"
#include "kernels/message_header.hpp"
#include "kernels/ordered_sum.hpp"
#include "kernels/owned.hpp"
#include "kernels/reduce.hpp"
#include "kernels/residual_add.hpp"
#include "kernels/select_sums.hpp"
#include "kernels/split.hpp"
#include "kernels/take.hpp"
#include "kernels/terms.hpp"
#include "kernels/value_coding.hpp"

namespace winnow::kernels {

/// The bodies of all operations in one place. A body has the signature of its
/// operation. It may rely on what kernels/dispatch has checked.
struct Bodies {
  void (*copy)(const Exec&, std::span<std::byte>, std::span<const std::byte>);
  void (*place_terms)(const Exec&, PlacedTerms&, std::uint64_t most);
  void (*load)() = nullptr;                               ///< the bodies, to the current device
#define WINNOW_BODY(name) decltype(kernels::name)* name;  // NOLINT(bugprone-macro-parentheses)
  WINNOW_OPERATIONS(WINNOW_BODY, WINNOW_BODY)
#undef WINNOW_BODY
};

extern const Bodies kCpu;   ///< SIMD and threads
extern const Bodies kCuda;  ///< all null in a build without CUDA
/// Plain loops, the specification: null until lab/reference is there.
extern constinit const Bodies* reference_bodies;

/// The object that Exec::stream of kCountedPlace points to. Its bodies obey a device's rules:
/// memory that is passed to them is the host's to read only by way of `read`. Only words, which
/// operations answer in, are ever written.
struct CountedStream {
  const Bodies& bodies;
};

/// Whether a condition in host memory holds.
inline bool holds(const Condition& condition) {
  if (condition.words == nullptr) return true;
  const std::span words(condition.words, condition.count);
  return std::ranges::any_of(words, [](std::uint32_t word) { return word != 0; }) == condition.any;
}

/// The table of exec.place.
inline const Bodies& bodies_of(const Exec& exec) {
  if (exec.place == Place::host) return kCpu;
  if (exec.place == Place::cuda) return kCuda;
  if (exec.place == kCountedPlace) {
    WINNOW_EXPECTS(exec.stream != nullptr, "only predictions run at kCountedPlace");
    return static_cast<const CountedStream*>(exec.stream)->bodies;
  }
  if (exec.place == kReferencePlace) {
    WINNOW_EXPECTS(reference_bodies != nullptr, "lab/reference is not linked");
    return *reference_bodies;
  }
  fail_usage("place " + std::to_string(static_cast<int>(exec.place)) + " has no bodies");
}

/// The body that exec.place names. UsageError where this build has none.
template <class Body>
Body& body_of(const Exec& exec, Body* Bodies::*operation) {
  WINNOW_EXPECTS(exec.workspace == nullptr || !exec.workspace->is_device(),
                 "Exec::workspace must be of the host; that of a device is device_workspace");
  Body* const body = bodies_of(exec).*operation;
  WINNOW_EXPECTS(body != nullptr, exec.place == kCountedPlace
                                      ? "predictions do not count this operation"
                                      : "this Winnow was built without CUDA, or without code for "
                                        "devices; pass host memory and Place::host");
  return *body;
}

/// Calls the body that exec.place names, under FloatMode. Where exec.condition does not hold on the
/// host it calls none; on a device its kernels look. The one place where operations are dispatched.
template <class Body, class... Args>
void dispatch(const Exec& exec, Body* Bodies::*operation, Args&&... args) {
  Body& body = body_of(exec, operation);
  if (exec.place != Place::cuda && !holds(exec.condition)) return;
  if (exec.place == kCountedPlace) {  // in a fiber, which may give way to another one
    body(exec, std::forward<Args>(args)...);
    return;
  }
  const FloatMode mode;
  body(exec, std::forward<Args>(args)...);
}

}  // namespace winnow::kernels
