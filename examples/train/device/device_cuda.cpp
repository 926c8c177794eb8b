// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <cublas_v2.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <winnow/error.hpp>

#include "kernels/cuda/memory.hpp"
#include "kernels/cuda/stream.hpp"
#include "train/device/arithmetic.hpp"
#include "train/device/device.hpp"

namespace train {

namespace {

void expect_success(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw winnow::CudaError(std::string(cublasGetStatusString(status)) + " (from " + call + ")");
}

/// Everything runs on one stream of the current device. The streams of Winnow's own transports wait
/// for it if they must.
class CudaDevice final : public Device<float> {
 public:
  CudaDevice() {
    cublasHandle_t products = nullptr;
    expect_success(cublasCreate(&products), "cublasCreate");
    products_.reset(products);
    expect_success(cublasSetStream(products, stream_.get()), "cublasSetStream");
    // Float32 as on the host: no TF32, nor anything else that is faster and less exact.
    expect_success(cublasSetMathMode(products, CUBLAS_PEDANTIC_MATH), "cublasSetMathMode");
  }

  winnow::Exec exec() const override { return stream_.exec(); }
  void synchronize() override { stream_.synchronize(); }

  std::byte* allocate(std::size_t bytes) override {
    std::byte* const memory = winnow::kernels::cuda::kDeviceMemory.allocate(bytes);
    WINNOW_CUDA_TRY(cudaMemsetAsync(memory, 0, bytes, stream_.get()));
    return memory;
  }
  void release(std::byte* memory) noexcept override {
    winnow::kernels::cuda::kDeviceMemory.release(memory);
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    WINNOW_CUDA_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_.get()));
    stream_.synchronize();
  }

  void multiply(Matrix left, Take take_left, Matrix right, Take take_right,
                Matrix product) override {
    const auto inner = take_left == Take::as_is ? left.columns : left.rows;
    const float one = 1, zero = 0;
    expect_success(
        cublasSgemm(products_.get(), operation(take_left), operation(take_right),
                    static_cast<int>(product.rows), static_cast<int>(product.columns),
                    static_cast<int>(inner), &one, left.data, static_cast<int>(left.rows),
                    right.data, static_cast<int>(right.rows), &zero, product.data,
                    static_cast<int>(product.rows)),
        "cublasSgemm");
  }
  void take_columns(Matrix table, Symbols symbols, Matrix to) override {
    cuda::take_columns(exec(), table, symbols, to);
  }
  void sum_columns(Matrix from, Symbols symbols, Matrix table) override {
    cuda::sum_columns(exec(), from, symbols, table);
  }
  void sum_rows(Matrix from, float* sums) override { cuda::sum_rows(exec(), from, sums); }
  void add_bias(Matrix x, const float* bias) override { cuda::add_bias(exec(), x, bias); }
  void relu(Matrix x) override { cuda::relu(exec(), x); }
  void relu_backward(Matrix x, Matrix gradient) override {
    cuda::relu_backward(exec(), x, gradient);
  }
  void softmax(Matrix scores, Symbols targets, double* losses) override {
    cuda::softmax(exec(), scores, targets, losses);
  }
  void softmax_backward(Matrix probabilities, Symbols targets, Matrix gradient) override {
    cuda::softmax_backward(exec(), probabilities, targets, gradient);
  }
  void momentum_step(float momentum, std::span<const float> updates, float* velocity,
                     float* parameters) override {
    cuda::momentum_step(exec(), {momentum, updates, velocity, parameters});
  }

 private:
  static cublasOperation_t operation(Take take) {
    return take == Take::as_is ? CUBLAS_OP_N : CUBLAS_OP_T;
  }
  struct Destroy {
    void operator()(cublasHandle_t products) const noexcept { (void)cublasDestroy(products); }
  };

  winnow::kernels::cuda::Stream stream_;
  std::unique_ptr<cublasContext, Destroy> products_;
};

}  // namespace

bool has_cuda() {
  return true;
}

std::string why_no_gpu() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaSuccess) return devices > 0 ? "" : "CUDA finds no device";
  (void)cudaGetLastError();
  return cudaGetErrorString(status);
}

std::shared_ptr<Device<float>> cuda_device(int place) {
  int devices = 0;
  WINNOW_CUDA_TRY(cudaGetDeviceCount(&devices));
  WINNOW_CUDA_TRY(cudaSetDevice(place % std::max(devices, 1)));
  return std::make_shared<CudaDevice>();
}

}  // namespace train
