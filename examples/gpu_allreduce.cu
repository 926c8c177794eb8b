// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <chrono>
#include <iostream>
#include <stdexcept>
#include <string_view>
#include <vector>
#include <winnow/mpi.hpp>
#include <winnow/nccl.hpp>
#include <winnow/winnow.hpp>

void check(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm node = MPI_COMM_NULL;
  int place = 0, devices = 0;  // the next rank of a node takes its next GPU
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Comm_rank(node, &place);
  MPI_Comm_free(&node);
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::cerr << "gpu_allreduce: there is no GPU here\n";
    MPI_Abort(MPI_COMM_WORLD, 77);
  }
  check(cudaSetDevice(place % devices));

  constexpr std::size_t kCount = 1 << 20;
  const std::vector<float> ones(kCount, 1.0F);
  void* gradient = nullptr;
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  check(cudaMalloc(&gradient, kCount * sizeof(float)));
  check(cudaMemcpyAsync(gradient, ones.data(), kCount * sizeof(float), cudaMemcpyHostToDevice,
                        stream));
  {
    std::shared_ptr<winnow::Transport> transport = winnow::mpi_transport(MPI_COMM_WORLD);
    // Over NCCL every rank needs a GPU of its own; over MPI they may share one.
    const bool over_nccl = argc < 2 || argv[1] != std::string_view("mpi");
    if (over_nccl) {
      const auto deadline = winnow::Deadline::after(std::chrono::minutes(1));
      transport = winnow::nccl_transport(*transport, deadline);
    }
    const winnow::Options options{.compressor = "topk:0.01", .op = winnow::ReduceOp::sum};
    winnow::AllReducer reducer(transport, winnow::Options::from_environment(options),
                               {.place = winnow::Place::cuda, .stream = stream});
    // Was ncclAllReduce(gradient, gradient, kCount, ncclFloat, ncclSum, communicator, stream);
    // 0 is the parameter's id.
    reducer.all_reduce(winnow::Elements(gradient, kCount, winnow::ElementType::float32), 0);
    reducer.synchronize();  // only to learn of errors: the stream needs no more than the call
    if (transport->rank() == 0) {
      std::cout << reducer.last().schedule << ": " << reducer.last().wire_bytes
                << " bytes sent instead of " << reducer.last().dense_wire_bytes << '\n';
    }
  }
  check(cudaFree(gradient));
  check(cudaStreamDestroy(stream));
  MPI_Finalize();
}
