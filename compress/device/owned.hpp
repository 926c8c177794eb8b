// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <span>
#include <winnow/exec.hpp>

#include "compress/compressor.hpp"
#include "kernels/cuda/add_to.hpp"
#include "kernels/memory_ops.hpp"

namespace winnow::compress {

// Parts in device memory whose positions have owners: what a Compressor does with them. Work is
// enqueued on exec.stream; scratch is of exec.device_workspace and what the host lists of
// exec.workspace. What Outbox::owned and Owned name lies in device memory too.

/// A list of the host in scratch of the device, as kernels::cuda::store writes it.
template <class T>
std::span<T> upload(const Exec& exec, std::span<T> list) {
  const auto there = exec.device_workspace->take<T>(list.size());
  kernels::store(exec, std::as_writable_bytes(there), std::as_bytes(list));
  return there;
}

/// What kernels::cuda::ordered_sum sums, with room in device memory for terms that are many.
inline void place_terms(const Exec& exec, std::span<kernels::cuda::DeviceTerm> terms,
                        kernels::cuda::DeviceSumJob& job) {
  job.terms = terms;
  if (terms.size() > kernels::cuda::kTermsInArguments) job.there = upload(exec, terms).data();
}

/// Where the elements of pieces lie, as the device is told.
template <class Elements>
std::span<const kernels::cuda::PlacedSpan> place(const Exec& exec, const Part& part,
                                                 const Elements& elements_of) {
  const Workspace::Scope scope(*exec.workspace);
  const auto pieces = exec.workspace->take<kernels::cuda::PlacedSpan>(part.pieces.size());
  std::ranges::transform(part.pieces, pieces.begin(), [&](const Piece& piece) {
    return kernels::cuda::PlacedSpan{elements_of(piece), piece.base};
  });
  return upload(exec, pieces);
}

/// Those of the residuals.
std::span<const kernels::cuda::PlacedSpan> place_residuals(const Exec& exec, const Part& part);

/// Compressor::encode of a compressor that keeps some elements. Waits for the device, for each
/// message's k is up to the support.
void encode_selected_by_owner(const Exec& exec, const Codings& codings, const EncodeJob& job,
                              Outbox& out);
/// That of one that keeps every element.
void encode_everything_by_owner(const Exec& exec, const Codings& codings, const EncodeJob& job,
                                Outbox& out);

/// put_back of what a message to an owner carries.
void put_back_by_owner(const Exec& exec, const Part& part, std::uint32_t owner,
                       const kernels::cuda::DeviceTerm& values);

/// keep_left and put_back_own.
void keep_left_on_device(const Exec& exec, const Part& part, const Owned& owned);
void put_back_own_on_device(const Exec& exec, const Part& part, const Owned& owned);

}  // namespace winnow::compress
