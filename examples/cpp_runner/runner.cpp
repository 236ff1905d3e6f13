// Runs an ExecuTorch program on a machine without Python, and writes the files that etviz reads: the ETDump, the debug
// buffer, the outputs. `etviz_runner --help` lists the flags.
//
// Exit status: 0 fine, 1 an output differs from the expected one, 2 bad usage, a bad file, or a failure of the runtime.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <unistd.h>

#include <executorch/extension/data_loader/buffer_data_loader.h>
#include <executorch/extension/data_loader/file_data_loader.h>
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/core/exec_aten/util/scalar_type_util.h>
#include <executorch/runtime/platform/runtime.h>
#ifdef ET_EVENT_TRACER_ENABLED
#include <executorch/devtools/etdump/data_sinks/buffer_data_sink.h>
#include <executorch/devtools/etdump/data_sinks/file_data_sink.h>
#include <executorch/devtools/etdump/etdump_flatcc.h>
#endif

#include "bundle.h"
#include "etviz_calls.h"

namespace {

using executorch::aten::ScalarType;
using executorch::aten::Tensor;
using executorch::extension::Module;
using executorch::extension::TensorPtr;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::MethodMeta;
using executorch::runtime::Tag;
using namespace etviz;

constexpr const char* kUsage = R"(etviz_runner: runs an ExecuTorch program

  --model PATH                  the program: .pte, or .bpte with test sets
  --method NAME[,NAME...]       the method, or several methods to run one after the other (forward)
  --inputs A.bin,B.bin          raw bytes of each input, in the order of memory, then those of further executions.
                                A.bin:2x3 gives the shape of a dynamic input. Numbers are int64, float64 or one byte
                                (bool). Without it: the test sets of a .bpte, ones for a .pte
  --testset-idx N               only this test set of a .bpte, from 0
  --executions N                number of executions with each of the inputs (1)
  --data PATH.ptd               weights that are not in the program
  --outputs PREFIX              writes PREFIX-<output>.bin; PREFIX-<execution>-<output>.bin for several executions
  --calls PATH                  records the inputs of every call, for `etviz calls`
  --share-memory-arenas         all methods share their memory, for programs whose methods share state

  --etdump PATH                 (etdump.etdp)
  --dump-intermediate-outputs   logs the outputs of every instruction and every delegate
  --dump-program-outputs        logs the outputs of the program
  --debug-output PATH           the file with the logged values (debug_output.bin)
  --debug-buffer-size BYTES     logs into memory first; a buffer that is too small ends the run. Without it: into the
                                file

  --output-verification         compares the outputs with the expected outputs of the .bpte
  --rtol R, --atol A            tolerances of the comparison (1e-3, 1e-5)

The flags of ExecuTorch's example_runner work too: --bundled_program_path, --etdump_path, --debug_output_path,
--dump_outputs, with underscores or dashes, and --flag=VALUE.
)";

struct Options {
  std::string model, data, outputs, calls;
  std::vector<std::string> methods{"forward"};
  std::vector<std::string> inputs;
  size_t executions = 1;
  std::string etdump = "etdump.etdp", debug_output = "debug_output.bin";
  size_t debug_buffer_size = 0;
  std::optional<size_t> test_set;
  bool intermediate = false, program_outputs = false, verify = false, share_memory_arenas = false;
  double rtol = 1e-3, atol = 1e-5;
};

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

void check(Error error, const std::string& what) {
  if (error != Error::Ok) {
    std::ostringstream text;
    text << what << " failed: " << executorch::runtime::to_string(error) << " (0x" << std::hex
         << static_cast<int>(error) << ")";
    fail(text.str());
  }
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

size_t whole_number(const std::string& name, const std::string& text) {
  size_t end = 0;
  unsigned long long value = 0;
  try {
    value = std::stoull(text, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  if (end == 0 || end != text.size() || text[0] == '-') fail(name + " takes a whole number, found '" + text + "'");
  return value;
}

double real_number(const std::string& name, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end || !(value >= 0)) fail(name + " takes a number that is not negative, found '" + text + "'");
  return value;
}

bool truth(const std::string& name, const std::string& text) {
  if (text == "true" || text == "1") return true;
  if (text != "false" && text != "0") fail(name + " takes true or false, found '" + text + "'");
  return false;
}

Options parse(int argc, char** argv) {
  Options options;
  const std::map<std::string, std::function<void(const std::string&)>> valued = {
      {"--model", [&](const std::string& v) { options.model = v; }},
      {"--method", [&](const std::string& v) { options.methods = split(v); }},
      {"--inputs", [&](const std::string& v) { options.inputs = split(v); }},
      {"--testset-idx", [&](const std::string& v) { options.test_set = whole_number("--testset-idx", v); }},
      {"--executions", [&](const std::string& v) { options.executions = whole_number("--executions", v); }},
      {"--data", [&](const std::string& v) { options.data = v; }},
      {"--outputs", [&](const std::string& v) { options.outputs = v; }},
      {"--calls", [&](const std::string& v) { options.calls = v; }},
      {"--etdump", [&](const std::string& v) { options.etdump = v; }},
      {"--debug-output", [&](const std::string& v) { options.debug_output = v; }},
      {"--debug-buffer-size",
       [&](const std::string& v) { options.debug_buffer_size = whole_number("--debug-buffer-size", v); }},
      {"--rtol", [&](const std::string& v) { options.rtol = real_number("--rtol", v); }},
      {"--atol", [&](const std::string& v) { options.atol = real_number("--atol", v); }},
  };
  const std::map<std::string, bool*> switches = {
      {"--dump-intermediate-outputs", &options.intermediate},
      {"--dump-program-outputs", &options.program_outputs},
      {"--output-verification", &options.verify},
      {"--share-memory-arenas", &options.share_memory_arenas},
  };
  const std::map<std::string, std::string> aliases = {
      {"--bundled-program-path", "--model"}, {"--etdump-path", "--etdump"},
      {"--debug-output-path", "--debug-output"}, {"--dump-outputs", "--dump-program-outputs"},
  };
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i], value;
    if (name == "--help" || name == "-h") {
      std::cout << kUsage;
      std::exit(0);
    }
    const size_t equals = name.find('=');
    const bool attached = equals != std::string::npos;
    if (attached) {
      value = name.substr(equals + 1);
      name = name.substr(0, equals);
    }
    const std::string given = name;
    std::replace(name.begin(), name.end(), '_', '-');
    if (const auto alias = aliases.find(name); alias != aliases.end()) name = alias->second;
    if (const auto found = switches.find(name); found != switches.end()) {
      *found->second = !attached || truth(given, value);
      continue;
    }
    const auto found = valued.find(name);
    if (found == valued.end()) fail("there is no option " + given + "; see --help");
    if (!attached) {
      if (++i == argc) fail(given + " needs a value");
      value = argv[i];
    }
    found->second(value);
  }
  if (options.model.empty()) fail("--model is missing; see --help");
  if (options.methods.empty()) fail("--method is empty");
  if (options.intermediate && options.program_outputs) {
    fail("--dump-intermediate-outputs logs the program's outputs too; give one of the two");
  }
#ifndef ET_EVENT_TRACER_ENABLED
  if (options.intermediate || options.program_outputs) {
    fail("this runner was built without the event tracer (EVENT_TRACER=OFF): it writes outputs only");
  }
#endif
  return options;
}

Bytes read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) fail("there is no file " + path + ", or it can't be read");
  Bytes content(static_cast<size_t>(file.tellg()));
  file.seekg(0);
  if (!file.read(reinterpret_cast<char*>(content.data()), static_cast<std::streamsize>(content.size()))) {
    fail(path + " can't be read");
  }
  return content;
}

void write_file(const std::string& path, const void* data, size_t size) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
  file.close();
  if (!file) fail(path + " can't be written: is the disk full, does the folder exist?");
}

// Inputs of one execution; `tensors` own the memory that `values` refer to.
struct Inputs {
  std::vector<EValue> values;
  std::vector<TensorPtr> tensors;

  void add(TensorPtr tensor) {
    tensors.push_back(tensor);
    values.emplace_back(*tensor);
  }
};

// The bytes of a tensor; fails for one that no program takes.
size_t size_of(const std::vector<int32_t>& sizes, std::vector<uint8_t> order, ScalarType type, const std::string& origin) {
  if (!executorch::runtime::isValid(type)) fail(origin + " has an unknown dtype");
  std::sort(order.begin(), order.end());
  bool fits = order.size() == sizes.size();
  for (size_t i = 0; fits && i < order.size(); ++i) fits = order[i] == i;
  if (!fits) fail(origin + " has a dimension order that does not fit its shape");
  size_t count = executorch::runtime::elementSize(type);
  for (const int32_t size : sizes) {
    if (size < 0 || __builtin_mul_overflow(count, static_cast<size_t>(size), &count)) {
      fail(origin + " has a size that no tensor has");
    }
  }
  return count;
}

TensorPtr make_tensor(
    std::vector<int32_t> sizes, std::vector<uint8_t> dim_order, ScalarType type, const uint8_t* data, size_t nbytes,
    const std::string& origin) {
  const size_t expected = size_of(sizes, dim_order, type, origin);
  if (expected != nbytes) {
    fail(origin + " has " + std::to_string(nbytes) + " bytes, the input takes " + std::to_string(expected));
  }
  return executorch::extension::make_tensor_ptr(
      std::move(sizes), std::vector<uint8_t>(data, data + nbytes), std::move(dim_order), {}, type,
      executorch::aten::TensorShapeDynamism::DYNAMIC_BOUND);
}

std::vector<int32_t> parse_shape(const std::string& text, const std::string& origin) {
  std::vector<int32_t> sizes;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, 'x');) {
    sizes.push_back(static_cast<int32_t>(whole_number("the shape of " + origin, part)));
  }
  return sizes;
}

template <typename T>
T plain_number(const Bytes& content, const std::string& path) {
  if (content.size() != sizeof(T)) {
    fail(path + " has " + std::to_string(content.size()) + " bytes, the input is a number of " +
         std::to_string(sizeof(T)));
  }
  T value;
  std::memcpy(&value, content.data(), sizeof(T));
  return value;
}

void add_raw_input(Inputs& inputs, const MethodMeta& meta, size_t index, const std::string& given) {
  const auto tag = meta.input_tag(index);
  check(tag.error(), "reading the kind of input " + std::to_string(index));
  std::string path = given, shape;
  if (const size_t colon = given.rfind(':');
      colon != std::string::npos && given.find_first_not_of("0123456789x", colon + 1) == std::string::npos) {
    path = given.substr(0, colon);
    shape = given.substr(colon + 1);
  }
  const Bytes content = read_file(path);
  switch (*tag) {
    case Tag::Tensor: {
      const auto info = meta.input_tensor_meta(index);
      check(info.error(), "reading the shape of input " + std::to_string(index));
      std::vector<int32_t> sizes(info->sizes().begin(), info->sizes().end());
      if (path != given) sizes = parse_shape(shape, path);
      inputs.add(make_tensor(
          sizes, {info->dim_order().begin(), info->dim_order().end()}, info->scalar_type(), content.data(),
          content.size(), path));
      return;
    }
    case Tag::Int:
      inputs.values.emplace_back(plain_number<int64_t>(content, path));
      return;
    case Tag::Double:
      inputs.values.emplace_back(plain_number<double>(content, path));
      return;
    case Tag::Bool:
      inputs.values.emplace_back(plain_number<uint8_t>(content, path) != 0);
      return;
    default:
      fail("input " + std::to_string(index) + " is neither a tensor nor a number");
  }
}

std::vector<Inputs> raw_inputs(const MethodMeta& meta, const std::vector<std::string>& paths) {
  const size_t count = meta.num_inputs();
  if (count == 0 || paths.size() % count) {
    fail("the method takes " + std::to_string(count) + " inputs, --inputs names " + std::to_string(paths.size()) +
         " files");
  }
  std::vector<Inputs> sets(paths.size() / count);
  for (size_t i = 0; i < paths.size(); ++i) add_raw_input(sets[i / count], meta, i % count, paths[i]);
  return sets;
}

std::vector<Inputs> bundled_inputs(const BundledSuite& suite, std::optional<size_t> only) {
  if (only && *only >= suite.cases.size()) {
    fail("--testset-idx is " + std::to_string(*only) + ", the .bpte has " + std::to_string(suite.cases.size()) +
         " test sets of " + suite.method);
  }
  std::vector<Inputs> sets;
  for (size_t i = only.value_or(0); i < (only ? *only + 1 : suite.cases.size()); ++i) {
    Inputs inputs;
    for (const auto& value : suite.cases[i].inputs) {
      if (const auto* tensor = std::get_if<BundledTensor>(&value)) {
        inputs.add(make_tensor(
            tensor->sizes, tensor->dim_order, static_cast<ScalarType>(tensor->scalar_type), tensor->data,
            tensor->nbytes, "a test set's tensor"));
      } else if (const auto* integer = std::get_if<int64_t>(&value)) {
        inputs.values.emplace_back(*integer);
      } else if (const auto* flag = std::get_if<bool>(&value)) {
        inputs.values.emplace_back(*flag);
      } else if (const auto* real = std::get_if<double>(&value)) {
        inputs.values.emplace_back(*real);
      } else {
        fail("a test set has an input that is neither a tensor nor a number");
      }
    }
    sets.push_back(std::move(inputs));
  }
  return sets;
}

template <typename T>
void fill_with_ones(Bytes& content) {
  const T one = static_cast<T>(1.0f);
  for (size_t at = 0; at + sizeof(T) <= content.size(); at += sizeof(T)) std::memcpy(&content[at], &one, sizeof(T));
}

Inputs ones(const MethodMeta& meta) {
  Inputs inputs;
  for (size_t i = 0; i < meta.num_inputs(); ++i) {
    const auto tag = meta.input_tag(i);
    check(tag.error(), "reading the kind of input " + std::to_string(i));
    if (*tag == Tag::Int) inputs.values.emplace_back(static_cast<int64_t>(1));
    else if (*tag == Tag::Double) inputs.values.emplace_back(1.0);
    else if (*tag == Tag::Bool) inputs.values.emplace_back(true);
    else if (*tag != Tag::Tensor) inputs.values.emplace_back();
    if (*tag != Tag::Tensor) continue;
    const auto info = meta.input_tensor_meta(i);
    check(info.error(), "reading the shape of input " + std::to_string(i));
    Bytes content(info->nbytes());
    switch (info->scalar_type()) {
      case ScalarType::Float: fill_with_ones<float>(content); break;
      case ScalarType::Double: fill_with_ones<double>(content); break;
      case ScalarType::Half: fill_with_ones<executorch::aten::Half>(content); break;
      case ScalarType::BFloat16: fill_with_ones<executorch::aten::BFloat16>(content); break;
      case ScalarType::Long: fill_with_ones<int64_t>(content); break;
      case ScalarType::Int: fill_with_ones<int32_t>(content); break;
      case ScalarType::Short: fill_with_ones<int16_t>(content); break;
      default: fill_with_ones<uint8_t>(content);
    }
    inputs.add(make_tensor(
        {info->sizes().begin(), info->sizes().end()}, {info->dim_order().begin(), info->dim_order().end()},
        info->scalar_type(), content.data(), content.size(), "input " + std::to_string(i)));
  }
  return inputs;
}

// As upstream's verification: equal where both are NaN or the same infinity, else within atol + |rtol * expected|,
// in the arithmetic of the element type; half precision in double.
template <typename T>
bool is_close(T expected, T found, double rtol, double atol) {
  if (std::isnan(expected) && std::isnan(found)) return true;
  if (!std::isfinite(expected) && !std::isfinite(found) && (expected > 0) == (found > 0)) return true;
  if (rtol == 0 && atol == 0) return expected == found;
  const auto error = std::abs(expected - found);
  return std::isfinite(error) && !(error > atol + std::abs(rtol * found));
}

struct Deviation {
  size_t count = 0, first = 0;
  double expected = 0, found = 0;
};

template <typename T, typename Wide>
Deviation deviation(const BundledTensor& expected, const Tensor& found, double rtol, double atol) {
  Deviation result;
  const T* b = static_cast<const T*>(found.const_data_ptr());
  for (size_t i = 0; i < expected.nbytes / sizeof(T); ++i) {
    T a;
    std::memcpy(&a, expected.data + i * sizeof(T), sizeof(T));
    if (is_close(static_cast<Wide>(a), static_cast<Wide>(b[i]), rtol, atol)) continue;
    if (!result.count++) {
      result = {1, i, static_cast<double>(static_cast<Wide>(a)), static_cast<double>(static_cast<Wide>(b[i]))};
    }
  }
  return result;
}

// What is wrong with an output; empty if nothing is.
std::string difference(const BundledTensor& expected, const Tensor& found, double rtol, double atol) {
  const auto type = static_cast<ScalarType>(expected.scalar_type);
  if (type != found.scalar_type()) return "has another dtype than expected";
  if (expected.sizes != std::vector<int32_t>(found.sizes().begin(), found.sizes().end())) {
    return "has another shape than expected";
  }
  if (expected.nbytes != found.nbytes()) return "has another size than expected";
  Deviation off;
  if (type == ScalarType::Float) off = deviation<float, float>(expected, found, rtol, atol);
  else if (type == ScalarType::Double) off = deviation<double, double>(expected, found, rtol, atol);
  else if (type == ScalarType::Half) off = deviation<executorch::aten::Half, double>(expected, found, rtol, atol);
  else if (expected.nbytes && std::memcmp(expected.data, found.const_data_ptr(), expected.nbytes)) {
    return "is not the expected one, bit for bit";
  }
  if (!off.count) return "";
  std::ostringstream text;
  text.precision(9);
  text << "differs in " << off.count << " of " << found.numel() << " elements, first at " << off.first << ": "
       << off.found << " instead of " << off.expected;
  return text.str();
}

template <typename T>
std::string difference(T expected, T found, bool same) {
  if (same) return "";
  std::ostringstream text;
  text.precision(17);
  text << "is " << found << " instead of " << expected;
  return text.str();
}

std::string difference(const BundledValue& expected, const EValue& found, double rtol, double atol) {
  if (const auto* tensor = std::get_if<BundledTensor>(&expected); tensor && found.isTensor()) {
    return difference(*tensor, found.toTensor(), rtol, atol);
  }
  if (const auto* integer = std::get_if<int64_t>(&expected); integer && found.isInt()) {
    return difference(*integer, found.toInt(), *integer == found.toInt());
  }
  if (const auto* flag = std::get_if<bool>(&expected); flag && found.isBool()) {
    return difference(*flag, found.toBool(), *flag == found.toBool());
  }
  if (const auto* real = std::get_if<double>(&expected); real && found.isDouble()) {
    return difference(*real, found.toDouble(), is_close(*real, found.toDouble(), rtol, atol));
  }
  if (std::holds_alternative<std::monostate>(expected) && found.isNone()) return "";
  return "is of another kind than expected";
}

bool verify(const BundledCase& item, const std::vector<EValue>& outputs, const Options& options, const std::string& at) {
  if (item.expected_outputs.empty()) fail(at + ": there are no expected outputs to compare with");
  if (item.expected_outputs.size() != outputs.size()) {
    fail(at + ": " + std::to_string(outputs.size()) + " outputs, " + std::to_string(item.expected_outputs.size()) +
         " were expected");
  }
  bool fine = true;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string problem = difference(item.expected_outputs[i], outputs[i], options.rtol, options.atol);
    if (problem.empty()) continue;
    std::cout << at << ": output " << i << " " << problem << "\n";
    fine = false;
  }
  if (fine) std::cout << at << ": verified\n";
  return fine;
}

void write_output(const EValue& value, const std::string& path) {
  if (value.isTensor()) {
    write_file(path, value.toTensor().const_data_ptr(), value.toTensor().nbytes());
  } else if (value.isInt()) {
    const int64_t number = value.toInt();
    write_file(path, &number, sizeof(number));
  } else if (value.isDouble()) {
    const double number = value.toDouble();
    write_file(path, &number, sizeof(number));
  } else if (value.isBool()) {
    const uint8_t flag = value.toBool();
    write_file(path, &flag, sizeof(flag));
  } else {
    write_file(path, "", 0);
  }
}

#ifdef ET_EVENT_TRACER_ENABLED

// The ETDump and the debug buffer of all executions.
class Trace {
 public:
  explicit Trace(const Options& options) : options_(options), generator_(std::make_unique<executorch::etdump::ETDumpGen>()) {
    using executorch::runtime::EventTracerDebugLogLevel;
    if (!options.intermediate && !options.program_outputs) return;
    generator_->set_event_tracer_debug_level(
        options.intermediate ? EventTracerDebugLogLevel::kIntermediateOutputs
                             : EventTracerDebugLogLevel::kProgramOutputs);
    if (!options.debug_buffer_size) {
      auto file = executorch::etdump::FileDataSink::create(options.debug_output.c_str());
      if (!file.ok()) fail(options.debug_output + " can't be written");
      file_ = std::make_unique<executorch::etdump::FileDataSink>(std::move(file.get()));
      generator_->set_data_sink(file_.get());
      return;
    }
    memory_.resize(options.debug_buffer_size);
    auto buffer = executorch::etdump::BufferDataSink::create({memory_.data(), memory_.size()});
    check(buffer.error(), "making the debug buffer");
    buffer_ = std::make_unique<executorch::etdump::BufferDataSink>(std::move(buffer.get()));
    generator_->set_data_sink(buffer_.get());
  }

  std::unique_ptr<executorch::runtime::EventTracer> tracer() {
    used_ = generator_.get();
    return std::move(generator_);
  }

  void write() {
    const auto result = used_->get_etdump_data();
    if (result.buf && result.size && !options_.etdump.empty()) write_file(options_.etdump, result.buf, result.size);
    std::free(result.buf);
    if (buffer_) write_file(options_.debug_output, memory_.data(), buffer_->get_used_bytes());
    if (file_) file_->close();
  }

 private:
  const Options& options_;
  std::unique_ptr<executorch::etdump::ETDumpGen> generator_;
  executorch::etdump::ETDumpGen* used_ = nullptr;
  Bytes memory_;
  std::unique_ptr<executorch::etdump::BufferDataSink> buffer_;
  std::unique_ptr<executorch::etdump::FileDataSink> file_;
};

#else

class Trace {
 public:
  explicit Trace(const Options&) {}
  std::unique_ptr<executorch::runtime::EventTracer> tracer() { return nullptr; }
  void write() {}
};

#endif

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

constexpr size_t kAlignment = 4096;

// Fails where the header of a program points beyond its end: the runtime reads there before it verifies anything.
void check_header(const uint8_t* program, size_t size, const std::string& path) {
  struct {
    uint32_t root;
    char version[4], magic[4];
    uint32_t length;
    uint64_t program, segments, segment_bytes;
  } header;
  static_assert(sizeof(header) == 40);
  if (size < sizeof(header)) fail("loading " + path + " failed: it is too short for a program");
  std::memcpy(&header, program, sizeof(header));
  if (std::memcmp(header.version, "ET", 2)) fail("loading " + path + " failed: it is no program");
  if (std::memcmp(header.magic, "eh", 2)) return;
  if (header.program > size || header.segments > size || header.segment_bytes > size - header.segments ||
      header.root >= header.program) {
    fail("loading " + path + " failed: its header points beyond its end, the file is damaged or cut off");
  }
}

// Bytes of memory of this machine.
size_t memory_of_machine() {
  return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

class Runner {
 public:
  explicit Runner(const Options& options) : options_(options), trace_(options) {
    file_ = read_file(options.model);
    const bool bundled = is_bundle(file_);
    if (bundled) bundle_ = read_bundle(file_);
    if (options.verify && !bundled) fail("--output-verification needs a .bpte, " + options.model + " is none");
    const uint8_t* program = bundled ? bundle_.program : file_.data();
    const size_t size = bundled ? bundle_.program_size : file_.size();
    check_header(program, size, options.model);
    program_.reset(std::aligned_alloc(kAlignment, (size + kAlignment) / kAlignment * kAlignment));
    if (!program_) fail("there is not enough memory for the program");
    if (size) std::memcpy(program_.get(), program, size);
    std::unique_ptr<executorch::runtime::DataLoader> data;
    if (!options.data.empty()) {
      auto loader = executorch::extension::FileDataLoader::from(options.data.c_str());
      check(loader.error(), "opening " + options.data);
      data = std::make_unique<executorch::extension::FileDataLoader>(std::move(loader.get()));
    }
    module_ = std::make_unique<Module>(
        std::make_unique<executorch::extension::BufferDataLoader>(program_.get(), size), nullptr, nullptr,
        trace_.tracer(), std::move(data), options.share_memory_arenas);
    check(module_->load(executorch::runtime::Program::Verification::InternalConsistency), "loading " + options.model);
    if (options.calls.empty()) return;
    calls_ = std::make_unique<CallRecorder>(options.calls);
    calls_->reset("program 0 was loaded");
  }

  // True if every verified output is as expected.
  bool run() {
    bool fine = true;
    std::vector<std::vector<Inputs>> sets;
    size_t total = 0;
    for (const auto& method : options_.methods) {
      sets.push_back(inputs(method));
      total += sets.back().size() * options_.executions;
    }
    size_t execution = 0;
    for (size_t repeat = 0; repeat < options_.executions; ++repeat) {
      for (size_t m = 0; m < sets.size(); ++m) {
        for (size_t set = 0; set < sets[m].size(); ++set) {
          fine &= execute(options_.methods[m], sets[m][set], set, execution++, total > 1);
        }
      }
    }
    trace_.write();
    return fine;
  }

 private:
  std::vector<Inputs> inputs(const std::string& method) {
    auto meta = module_->method_meta(method);
    check(meta.error(), "looking for the method " + method);
    size_t planned = 0;
    for (size_t i = 0; i < meta->num_memory_planned_buffers(); ++i) {
      const auto bytes = meta->memory_planned_buffer_size(i);
      check(bytes.error(), "reading the memory plan of " + method);
      if (*bytes < 0 || __builtin_add_overflow(planned, static_cast<size_t>(*bytes), &planned) ||
          planned > memory_of_machine()) {
        fail("the method " + method + " takes more memory than this machine has");
      }
    }
    if (!options_.inputs.empty()) return raw_inputs(*meta, options_.inputs);
    if (const auto* suite = bundle_.suite(method); suite && !suite->cases.empty()) {
      return bundled_inputs(*suite, options_.test_set);
    }
    std::vector<Inputs> sets;
    sets.push_back(ones(*meta));
    return sets;
  }

  bool execute(const std::string& method, const Inputs& inputs, size_t set, size_t execution, bool several) {
    check(module_->load_method(method), "loading the method " + method);
    if (calls_) {
      calls_->call(method, inputs.values);
      if (!calls_->ok()) fail(options_.calls + " can't be written: is the disk full, does the folder exist?");
    }
    const auto start = std::chrono::steady_clock::now();
    const auto outputs = module_->execute(method, inputs.values);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    check(outputs.error(), "running the method " + method);
    std::cout << "execution " << execution << " of " << method << ": " << took.count() << " ms\n";
    for (size_t i = 0; !options_.outputs.empty() && i < outputs->size(); ++i) {
      const std::string number = several ? std::to_string(execution) + "-" : "";
      write_output((*outputs)[i], options_.outputs + "-" + number + std::to_string(i) + ".bin");
    }
    if (!options_.verify) return true;
    const auto* suite = bundle_.suite(method);
    set += options_.test_set.value_or(0);
    if (!suite || set >= suite->cases.size()) fail("the .bpte has no test set " + std::to_string(set) + " of " + method);
    return verify(suite->cases[set], *outputs, options_, method + ", test set " + std::to_string(set));
  }

  const Options& options_;
  Trace trace_;
  Bytes file_;
  Bundle bundle_;
  std::unique_ptr<void, Free> program_;
  std::unique_ptr<Module> module_;
  std::unique_ptr<CallRecorder> calls_;
};

}  // namespace

// The last resort: kernels and backends trust a program's content. A debugger sees the signal first.
void end_with_an_error(int) {
  constexpr char text[] =
      "etviz_runner: the runtime crashed: the program is damaged, the debug buffer is too small, or a kernel or backend "
      "is at fault\n";
  _exit(write(STDERR_FILENO, text, sizeof(text) - 1) < 0 ? 3 : 2);
}

int main(int argc, char** argv) {
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) std::signal(signal, end_with_an_error);
  executorch::runtime::runtime_init();
  try {
    const Options options = parse(argc, argv);
    return Runner(options).run() ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << "etviz_runner: " << error.what() << "\n";
    return 2;
  }
}
