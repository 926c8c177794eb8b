// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <winnow/error.hpp>
#include <winnow/transport.hpp>

#include "comm/transport/failure.hpp"

namespace winnow::comm {

/// Aborts the transport with the message and the kind of the error.
inline void abort_by(Transport& transport, const std::exception& error) noexcept {
  const Failure why = failure_of(error);
  transport.abort(why.text, why.kind);
}

/// For calls whose errors all ranks must learn, and for messages from or to memory that may end
/// with its owner when an error passes: peers must not read it then, so the transport aborts first.
/// A UsageError comes before any message.
template <class Act>
auto abort_on_error(Transport& transport, const Act& act) {
  try {
    return act();
  } catch (const UsageError&) {
    throw;
  } catch (const std::exception& error) {
    abort_by(transport, error);
    throw;
  }
}

}  // namespace winnow::comm
