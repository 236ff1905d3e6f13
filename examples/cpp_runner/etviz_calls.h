// Records the inputs of every call of an ExecuTorch program, for `etviz calls` and `etviz.lint_calls`. Header only;
// needs ExecuTorch's headers and C++17. The format stands in docs/calls.md.
//
//   etviz::CallRecorder recorder("calls/calls.bin");
//   recorder.reset("loaded");
//   recorder.call("forward", inputs);                  // before module.execute("forward", inputs)

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <executorch/runtime/core/evalue.h>

namespace etviz {

class CallRecorder {
 public:
  // `limit` bounds the bytes of the file; the calls after that are left out, and the file says so.
  explicit CallRecorder(const std::string& path, uint64_t limit = uint64_t{1} << 30)
      : file_(std::fopen(path.c_str(), "wb")), left_(limit) {
    if (!file_) return;
    std::fwrite("ETVCALLS", 1, 8, file_);
    const uint8_t version[4] = {1, 0, 0, 0};
    std::fwrite(version, 1, 4, file_);
  }
  ~CallRecorder() {
    if (file_) std::fclose(file_);
  }
  CallRecorder(const CallRecorder&) = delete;
  CallRecorder& operator=(const CallRecorder&) = delete;

  // False if the file could not be opened or written.
  bool ok() const { return file_ && !std::ferror(file_); }

  // The program was loaded, or its state was reset.
  void reset(const std::string& why = "reset") { text('R', why); }

  void note(const std::string& what) { text('N', what); }

  template <typename Values>  // a container of EValue
  void call(const std::string& method, const Values& inputs) {
    record_.assign(1, 'C');
    number(method.size(), 2);
    record_.insert(record_.end(), method.begin(), method.end());
    number(inputs.size(), 2);
    for (const executorch::runtime::EValue& value : inputs) add(value);
    write();
  }

 private:
  void number(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) record_.push_back(static_cast<uint8_t>(value >> (8 * i)));
  }

  void add(const executorch::runtime::EValue& value) {
    if (value.isTensor()) {
      const auto tensor = value.toTensor();
      number(1, 1);
      number(static_cast<uint64_t>(tensor.scalar_type()), 1);
      number(static_cast<uint64_t>(tensor.dim()), 1);
      for (const auto size : tensor.sizes()) number(static_cast<uint64_t>(size), 4);
      elements(tensor);
    } else if (value.isInt()) {
      number(2, 1);
      number(static_cast<uint64_t>(value.toInt()), 8);
    } else if (value.isDouble()) {
      const double real = value.toDouble();
      uint64_t bits = 0;
      std::memcpy(&bits, &real, sizeof(bits));
      number(3, 1);
      number(bits, 8);
    } else if (value.isBool()) {
      number(4, 1);
      number(value.toBool() ? 1 : 0, 1);
    } else {
      number(0, 1);
    }
  }

  // Row-major, whatever the order in memory.
  template <typename T>
  void elements(const T& tensor) {
    const auto* data = static_cast<const uint8_t*>(tensor.const_data_ptr());
    const size_t count = static_cast<size_t>(tensor.numel()), size = static_cast<size_t>(tensor.element_size());
    const auto order = tensor.dim_order();
    bool plain = true;
    for (size_t i = 0; i < order.size(); ++i) plain = plain && order[i] == i;
    if (plain) {
      record_.insert(record_.end(), data, data + count * size);
      return;
    }
    const auto sizes = tensor.sizes();
    const auto strides = tensor.strides();
    std::vector<size_t> index(sizes.size(), 0);
    for (size_t i = 0; i < count; ++i) {
      size_t at = 0;
      for (size_t d = 0; d < index.size(); ++d) at += index[d] * static_cast<size_t>(strides[d]);
      record_.insert(record_.end(), data + at * size, data + (at + 1) * size);
      for (size_t d = index.size(); d-- > 0 && ++index[d] == static_cast<size_t>(sizes[d]);) index[d] = 0;
    }
  }

  void text(char kind, const std::string& what) {
    record_.assign(1, static_cast<uint8_t>(kind));
    record_.insert(record_.end(), what.begin(), what.begin() + std::min<size_t>(what.size(), 4096));
    write();
  }

  void write() {
    if (!file_ || full_) return;
    if (left_ < record_.size() + 4) {
      full_ = true;
      record_.assign(1, 'L');
    } else {
      left_ -= record_.size() + 4;
    }
    uint8_t length[4];
    for (int i = 0; i < 4; ++i) length[i] = static_cast<uint8_t>(record_.size() >> (8 * i));
    std::fwrite(length, 1, 4, file_);
    std::fwrite(record_.data(), 1, record_.size(), file_);
    std::fflush(file_);
  }

  std::FILE* file_;
  uint64_t left_;
  bool full_ = false;
  std::vector<uint8_t> record_;
};

}  // namespace etviz
