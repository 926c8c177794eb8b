// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/mpi/reduce.hpp"

#include <algorithm>
#include <winnow/error.hpp>

#include "comm/transport/mpi/calls.hpp"
#include "kernels/reduce.hpp"

namespace winnow::comm {
namespace {

struct Type {
  ElementType winnows;
  MPI_Datatype mpis;
};
const std::array kTypes = {
    Type{ElementType::float32, MPI_FLOAT}, Type{ElementType::float64, MPI_DOUBLE},
    Type{ElementType::int8, MPI_INT8_T},   Type{ElementType::uint8, MPI_UINT8_T},
    Type{ElementType::int32, MPI_INT32_T}, Type{ElementType::uint32, MPI_UINT32_T},
    Type{ElementType::int64, MPI_INT64_T}, Type{ElementType::uint64, MPI_UINT64_T}};

/// An MPI_User_function: MPI calls it for a pair of pieces.
template <ReduceOp op>
void reduce_pair(void* from, void* into, int* count, MPI_Datatype* type) {
  const ElementType elements = std::ranges::find(kTypes, *type, &Type::mpis)->winnows;
  const auto size = static_cast<std::size_t>(*count);
  kernels::reduce({}, op, {into, size, elements}, {from, size, elements});
}

MPI_Op make(MPI_User_function* function) {
  MPI_Op op = MPI_OP_NULL;
  const int code = MPI_Op_create(function, /*commute=*/1, &op);
  if (code != MPI_SUCCESS) throw CommError("MPI_Op_create: " + mpi_text(code), code);
  return op;
}

}  // namespace

MpiReductions::MpiReductions()
    : own_{make(reduce_pair<ReduceOp::sum>), MPI_OP_NULL, make(reduce_pair<ReduceOp::minimum>),
           make(reduce_pair<ReduceOp::maximum>), make(reduce_pair<ReduceOp::product>)} {}

MPI_Datatype MpiReductions::type(ElementType type) {
  const auto found = std::ranges::find(kTypes, type, &Type::winnows);
  return found == kTypes.end() ? MPI_DATATYPE_NULL : found->mpis;
}

bool MpiReductions::is_native(ElementType type, ReduceOp op) {
  const bool floats = type == ElementType::float32 || type == ElementType::float64;
  return floats && (op == ReduceOp::sum || op == ReduceOp::product);
}

MPI_Op MpiReductions::op(ElementType type, ReduceOp op) const {
  if (!is_native(type, op)) return own_[static_cast<std::size_t>(op)];
  return op == ReduceOp::sum ? MPI_SUM : MPI_PROD;
}

void MpiReductions::let_go() noexcept {
  for (MPI_Op& op : own_) {
    if (op != MPI_OP_NULL) MPI_Op_free(&op);
  }
}

}  // namespace winnow::comm
