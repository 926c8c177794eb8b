// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <winnow/winnow.h>

#include <cmath>
#include <memory>
#include <winnow/error.hpp>
#include <winnow/transport.hpp>

/// A handle shares the transport with its reducer, so that it can abort while the reducer waits.
struct winnow_transport {
  std::shared_ptr<winnow::Transport> transport;
};

namespace winnow::comm {

/// Less than 0: never. UsageError for what is no number.
inline Deadline deadline_of(double seconds) {
  WINNOW_EXPECTS(!std::isnan(seconds), "seconds are not a number");
  return seconds < 0 ? Deadline::never() : Deadline::after(std::chrono::duration<double>(seconds));
}

}  // namespace winnow::comm
