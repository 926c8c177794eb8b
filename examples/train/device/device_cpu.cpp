// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <Eigen/Dense>
#include <cmath>
#include <cstring>
#include <new>

#include "train/device/device.hpp"
#include "train/sgd.hpp"

// The only file that includes Eigen, and the only one compiled for this machine's instruction set:
// sizes and alignment of Eigen's types depend on it.

namespace train {

namespace {

template <class Scalar>
class CpuDevice final : public Device<Scalar> {
 public:
  using typename Device<Scalar>::Matrix;
  using typename Device<Scalar>::Symbols;

  winnow::Exec exec() const override { return {}; }
  void synchronize() override {}

  std::byte* allocate(std::size_t bytes) override {
    return static_cast<std::byte*>(std::memset(::operator new(bytes, kAlignment), 0, bytes));
  }
  void release(std::byte* memory) noexcept override { ::operator delete(memory, kAlignment); }
  void copy(void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }

  void multiply(Matrix left, Take take_left, Matrix right, Take take_right,
                Matrix product) override {
    const auto times = [&](const auto& a) {
      if (take_right == Take::as_is) {
        map(product).noalias() = a * map(right);
      } else {
        map(product).noalias() = a * map(right).transpose();
      }
    };
    take_left == Take::as_is ? times(map(left)) : times(map(left).transpose());
  }

  void take_columns(Matrix table, Symbols symbols, Matrix to) override {
    Map columns = map(to), from = map(table);
    for (Index i = 0; i < columns.cols(); ++i) columns.col(i) = from.col(symbol(symbols, i));
  }

  void sum_columns(Matrix from, Symbols symbols, Matrix table) override {
    Map columns = map(from), sums = map(table);
    sums.setZero();
    for (Index i = 0; i < columns.cols(); ++i) sums.col(symbol(symbols, i)) += columns.col(i);
  }

  void sum_rows(Matrix from, Scalar* sums) override {
    VectorMap(sums, map(from).rows()) = map(from).rowwise().sum();
  }

  void add_bias(Matrix x, const Scalar* bias) override {
    map(x).colwise() += Eigen::Map<const Vector>(bias, map(x).rows());
  }

  void relu(Matrix x) override { map(x) = map(x).cwiseMax(Scalar(0)); }

  void relu_backward(Matrix x, Matrix gradient) override {
    map(gradient) = (map(x).array() > Scalar(0)).select(map(gradient), Scalar(0));
  }

  void softmax(Matrix scores, Symbols targets, double* losses) override {
    Map columns = map(scores);
    for (Index i = 0; i < columns.cols(); ++i) {
      auto column = columns.col(i).array();
      column -= column.maxCoeff();
      const Scalar score = column(symbol(targets, i));
      column = column.exp();
      const Scalar sum = column.sum();
      column /= sum;
      losses[i] = std::log(static_cast<double>(sum)) - static_cast<double>(score);
    }
  }

  void softmax_backward(Matrix probabilities, Symbols targets, Matrix gradient) override {
    Map d = map(gradient);
    d = map(probabilities);
    for (Index i = 0; i < d.cols(); ++i) d(symbol(targets, i), i) -= Scalar(1);
    d /= static_cast<Scalar>(d.cols());
  }

  // Another file updates parameters, so that the ranks' bits do not depend on the machine.
  void momentum_step(Scalar momentum, std::span<const Scalar> updates, Scalar* velocity,
                     Scalar* parameters) override {
    train::momentum_step(momentum, updates, velocity, parameters);
  }

 private:
  using Index = Eigen::Index;
  using Map = Eigen::Map<Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic>>;
  using Vector = Eigen::Matrix<Scalar, Eigen::Dynamic, 1>;
  using VectorMap = Eigen::Map<Vector>;

  // For all memory: the order of Eigen's sums depends on it.
  static constexpr std::align_val_t kAlignment{64};

  static Map map(const Matrix& view) {
    return {view.data, static_cast<Index>(view.rows), static_cast<Index>(view.columns)};
  }
  static Index symbol(Symbols symbols, Index i) { return symbols[static_cast<std::size_t>(i)]; }
};

}  // namespace

template <class Scalar>
std::shared_ptr<Device<Scalar>> cpu_device() {
  return std::make_shared<CpuDevice<Scalar>>();
}

template std::shared_ptr<Device<float>> cpu_device();
template std::shared_ptr<Device<double>> cpu_device();

}  // namespace train
