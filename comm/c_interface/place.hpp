// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <winnow/winnow.h>

#include <string>
#include <winnow/error.hpp>
#include <winnow/exec.hpp>

namespace winnow::comm {

/// A place of winnow_place, and the stream there.
inline Exec exec_of(int place, void* stream) {
  WINNOW_EXPECTS(place == WINNOW_HOST || place == WINNOW_CUDA,
                 "place " + std::to_string(place) + ": must be WINNOW_HOST or WINNOW_CUDA");
  WINNOW_EXPECTS(place == WINNOW_CUDA || stream == nullptr,
                 "stream is for memory of a device: with it place must be WINNOW_CUDA");
  return {.place = place == WINNOW_CUDA ? Place::cuda : Place::host, .stream = stream};
}

}  // namespace winnow::comm
