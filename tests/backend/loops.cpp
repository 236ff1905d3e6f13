// A backend of the tests: it executes a few operators with plain loops, times each, and logs each value that it makes.
// `loops.py` writes the text that it reads.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/core/event_tracer_hooks_delegate.h>
#include <executorch/extension/tensor/tensor.h>

namespace {

using executorch::aten::ScalarType;
using executorch::aten::Tensor;
using executorch::extension::make_tensor_ptr;
using executorch::runtime::ArrayRef;
using executorch::runtime::BackendExecutionContext;
using executorch::runtime::BackendInitContext;
using executorch::runtime::BackendInterface;
using executorch::runtime::CompileSpec;
using executorch::runtime::DelegateHandle;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::FreeableBuffer;
using executorch::runtime::Result;
using executorch::runtime::Span;

struct Value {
  std::vector<int32_t> sizes;
  std::vector<float> data;
};

struct Step {
  std::string operation;
  int64_t id = -1;        // integer id, -1 where values go by names
  std::string name;       // the name, "-" where values go by integers
  std::string layout;     // how the value is logged: plain, channels_last, int8
  size_t output = 0;
  std::vector<size_t> inputs;
};

struct Loops {
  std::vector<Value> values;
  std::vector<Step> steps;
  std::vector<size_t> inputs, outputs;
  double flipped_share = 0;  // of the executions in which one bit of one element is flipped
  size_t flipped_step = 0;
  mutable uint64_t random = 0;
};

bool parse(const std::string& text, Loops& loops) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    if (kind == "value") {
      Value value;
      size_t count = 1;
      for (int32_t size; words >> size;) {
        value.sizes.push_back(size);
        count *= static_cast<size_t>(size);
      }
      value.data.resize(count);
      loops.values.push_back(std::move(value));
    } else if (kind == "constant") {
      size_t slot = 0, at = 0;
      words >> slot;
      if (slot >= loops.values.size()) return false;
      for (std::string number; words >> number && at < loops.values[slot].data.size();) {
        loops.values[slot].data[at++] = std::strtof(number.c_str(), nullptr);
      }
    } else if (kind == "input" || kind == "output") {
      size_t slot = 0;
      words >> slot;
      if (slot >= loops.values.size()) return false;
      (kind == "input" ? loops.inputs : loops.outputs).push_back(slot);
    } else if (kind == "flip") {
      words >> loops.flipped_share >> loops.flipped_step >> loops.random;
    } else if (kind == "step") {
      Step step;
      words >> step.operation >> step.id >> step.name >> step.layout >> step.output;
      for (size_t slot; words >> slot;) step.inputs.push_back(slot);
      for (const size_t slot : step.inputs) {
        if (slot >= loops.values.size()) return false;
      }
      if (step.output >= loops.values.size() || step.inputs.empty()) return false;
      loops.steps.push_back(std::move(step));
    } else if (!kind.empty()) {
      return false;
    }
  }
  return true;
}

float one(const std::string& operation, float a, float b) {
  if (operation == "add") return a + b;
  if (operation == "sub") return a - b;
  if (operation == "mul") return a * b;
  if (operation == "add_relu") return a + b > 0 ? a + b : 0;
  if (operation == "relu") return a > 0 ? a : 0;
  if (operation == "tanh") return std::tanh(a);
  if (operation == "exp_neg") return std::exp(-a);
  if (operation == "inverse_of_one_more") return 1 / (1 + a);
  return NAN;
}

void run(const Step& step, std::vector<Value>& values) {
  Value& out = values[step.output];
  const Value& a = values[step.inputs[0]];
  if (step.operation == "linear") {  // a: (m, k), weight: (n, k), bias: (n)
    const Value& weight = values[step.inputs[1]];
    const size_t n = static_cast<size_t>(weight.sizes[0]), k = static_cast<size_t>(weight.sizes[1]);
    for (size_t i = 0; i < out.data.size(); ++i) {
      float sum = step.inputs.size() > 2 ? values[step.inputs[2]].data[i % n] : 0;
      for (size_t j = 0; j < k; ++j) sum += a.data[i / n * k + j] * weight.data[i % n * k + j];
      out.data[i] = sum;
    }
    return;
  }
  const Value& b = values[step.inputs.size() > 1 ? step.inputs[1] : step.inputs[0]];
  for (size_t i = 0; i < out.data.size(); ++i) {
    out.data[i] = one(step.operation, a.data[i % a.data.size()], b.data[i % b.data.size()]);
  }
}

// Where an element of a channels-last tensor of four dimensions comes from.
std::vector<float> channels_last(const Value& value) {
  const auto& s = value.sizes;
  std::vector<float> moved(value.data.size());
  size_t at = 0;
  for (int32_t n = 0; n < s[0]; ++n)
    for (int32_t y = 0; y < s[2]; ++y)
      for (int32_t x = 0; x < s[3]; ++x)
        for (int32_t c = 0; c < s[1]; ++c) moved[at++] = value.data[((n * s[1] + c) * s[2] + y) * s[3] + x];
  return moved;
}

void log(BackendExecutionContext& context, const Step& step, const Value& value) {
  auto* tracer = context.event_tracer();
  // Without a debug buffer the tracer has nowhere to put a value, and ends the process.
  if (!tracer ||
      tracer->event_tracer_debug_level() < executorch::runtime::EventTracerDebugLogLevel::kIntermediateOutputs) {
    return;
  }
  const char* name = step.name == "-" ? nullptr : step.name.c_str();
  const auto id = step.id < 0 ? executorch::runtime::kUnsetDelegateDebugIntId
                              : static_cast<executorch::runtime::DebugHandle>(step.id);
  if (step.layout == "channels_last" && value.sizes.size() == 4) {
    const auto& s = value.sizes;
    const auto tensor = make_tensor_ptr({s[0], s[2], s[3], s[1]}, channels_last(value));
    executorch::runtime::event_tracer_log_output_delegate<Tensor>(tracer, name, id, *tensor);
  } else if (step.layout == "int8") {  // on a grid of 1/16
    std::vector<uint8_t> rounded;
    for (const float x : value.data) {
      const auto number = static_cast<int8_t>(std::fmin(127, std::fmax(-128, std::nearbyint(x * 16))));
      rounded.push_back(static_cast<uint8_t>(number));
    }
    const auto tensor = make_tensor_ptr(value.sizes, std::move(rounded), {}, {}, ScalarType::Char);
    executorch::runtime::event_tracer_log_output_delegate<Tensor>(tracer, name, id, *tensor);
  } else {
    const auto tensor = make_tensor_ptr(value.sizes, value.data);
    executorch::runtime::event_tracer_log_output_delegate<Tensor>(tracer, name, id, *tensor);
  }
}

double uniform(uint64_t& state) {  // splitmix64: the same on every machine
  uint64_t z = (state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return static_cast<double>((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

// In a share of the executions, one step of one element's last bit: what a race does.
void maybe_flip(const Loops& loops, size_t step, Value& value) {
  if (step != loops.flipped_step || loops.flipped_share <= 0) return;
  if (uniform(loops.random) >= loops.flipped_share) return;
  const size_t at = static_cast<size_t>(uniform(loops.random) * static_cast<double>(value.data.size()));
  uint32_t bits;
  std::memcpy(&bits, &value.data[at], sizeof(bits));
  bits ^= 1;
  std::memcpy(&value.data[at], &bits, sizeof(bits));
}

class LoopsBackend final : public BackendInterface {
 public:
  bool is_available() const override { return true; }

  Result<DelegateHandle*> init(
      BackendInitContext&, FreeableBuffer* processed, ArrayRef<CompileSpec>) const override {
    auto loops = std::make_unique<Loops>();
    const std::string text(static_cast<const char*>(processed->data()), processed->size());
    processed->Free();
    if (!parse(text, *loops)) return Error::InvalidProgram;
    return loops.release();
  }

  Error execute(BackendExecutionContext& context, DelegateHandle* handle, Span<EValue*> args) const override {
    const Loops& loops = *static_cast<Loops*>(handle);
    std::vector<Value> values = loops.values;
    if (args.size() != loops.inputs.size() + loops.outputs.size()) return Error::InvalidArgument;
    for (size_t i = 0; i < loops.inputs.size(); ++i) {
      const Tensor& given = args[i]->toTensor();
      Value& value = values[loops.inputs[i]];
      if (given.nbytes() != value.data.size() * sizeof(float)) return Error::InvalidArgument;
      if (!value.data.empty()) std::memcpy(value.data.data(), given.const_data_ptr(), given.nbytes());
    }
    for (size_t i = 0; i < loops.steps.size(); ++i) {
      const Step& step = loops.steps[i];
      const char* name = step.name == "-" ? nullptr : step.name.c_str();
      const auto id = step.id < 0 ? executorch::runtime::kUnsetDelegateDebugIntId
                                  : static_cast<executorch::runtime::DebugHandle>(step.id);
      auto entry = executorch::runtime::event_tracer_start_profiling_delegate(context.event_tracer(), name, id);
      run(step, values);
      maybe_flip(loops, i, values[step.output]);
      executorch::runtime::event_tracer_end_profiling_delegate(context.event_tracer(), entry);
      log(context, step, values[step.output]);
    }
    for (size_t i = 0; i < loops.outputs.size(); ++i) {
      Tensor& out = args[loops.inputs.size() + i]->toTensor();
      const Value& value = values[loops.outputs[i]];
      if (out.nbytes() != value.data.size() * sizeof(float)) return Error::InvalidArgument;
      if (!value.data.empty()) std::memcpy(out.mutable_data_ptr(), value.data.data(), out.nbytes());
    }
    return Error::Ok;
  }

  void destroy(DelegateHandle* handle) const override { delete static_cast<Loops*>(handle); }
};

LoopsBackend backend;
const auto registered = executorch::runtime::register_backend({"LoopsBackend", &backend});

}  // namespace
