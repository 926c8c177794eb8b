// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/call_status.hpp"

#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

void end_call(const Exec& exec, const CallEnd& end) {
  WINNOW_EXPECTS(end.status != nullptr && end.report != nullptr && end.counts != nullptr,
                 "a call ends in its status, its report and its count of refusals");
  dispatch(exec, &Bodies::end_call, end);
}

}  // namespace winnow::kernels
