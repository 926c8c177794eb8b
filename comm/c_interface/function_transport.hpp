// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <winnow/winnow.h>

#include <memory>
#include <winnow/transport.hpp>

namespace winnow::comm {

/// A transport made of a caller's functions. UsageError if one is missing or the ranks are wrong.
std::unique_ptr<Transport> function_transport(const winnow_transport_functions& functions);

}  // namespace winnow::comm
