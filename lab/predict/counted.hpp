// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <winnow/exec.hpp>
#include <winnow/workspace.hpp>

#include "compress/message.hpp"
#include "kernels/dispatch/bodies.hpp"
#include "lab/simulated/simulated.hpp"

namespace winnow::comm {

/// Address space for what is never touched but in a few words.
extern const MemorySource kCountedMemory;

/// The kCountedPlace of a simulated rank: kernels whose passes over memory take virtual time.
/// Where the support decides the size of an answer, supports are taken as independent and evenly
/// spread.
class CountedPlace : public kernels::CountedStream {
 public:
  /// For messages with `codings`. Both must outlive it.
  CountedPlace(SimulatedTransport& rank, const compress::Codings& codings);
  CountedPlace(const CountedPlace&) = delete;
  CountedPlace& operator=(const CountedPlace&) = delete;

  const Exec& exec() const { return exec_; }
  SimulatedTransport& rank() const { return rank_; }
  const compress::Codings& codings() const { return codings_; }

 private:
  SimulatedTransport& rank_;
  const compress::Codings& codings_;
  Workspace lists_, data_;
  Exec exec_;
};

}  // namespace winnow::comm
