// Runs an ExecuTorch program on a machine without Python, and keeps what etviz reads: the ETDump, the debug buffer,
// the outputs. `etviz_runner --help` says how.
//
// Exit status: 0 fine, 1 an output differs from the expected one, 2 bad usage, a bad file, or the runtime failed.

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

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
  --method NAME[,NAME...]       the method, or several that are run one after the other (forward)
  --inputs A.bin,B.bin          raw bytes of each input, in the order of memory; the files of further executions
                                follow. A.bin:2x3 says the shape where it is dynamic. Numbers are int64, float64 or
                                one byte (bool). Without it: the test sets of a .bpte, ones for a .pte
  --executions N                how often each of the inputs is run (1)
  --data PATH.ptd               weights that are not in the program
  --outputs PREFIX              writes PREFIX-<output>.bin; PREFIX-<execution>-<output>.bin where there are several
  --share-memory-arenas         all methods work in the same memory, for state that they share

  --etdump PATH                 (etdump.etdp)
  --dump-intermediate-outputs   logs what every instruction and every delegate gives out
  --dump-program-outputs        logs the outputs of the program
  --debug-output PATH           where that goes (debug_output.bin)
  --debug-buffer-size BYTES     logs into memory first; too little of it ends the run. Without it: into the file

  --output-verification         compares the outputs with those of the .bpte's test sets
  --rtol R, --atol A            of that comparison (1e-5, 1e-8)
)";

struct Options {
  std::string model, data, outputs;
  std::vector<std::string> methods{"forward"};
  std::vector<std::string> inputs;
  size_t executions = 1;
  std::string etdump = "etdump.etdp", debug_output = "debug_output.bin";
  size_t debug_buffer_size = 0;
  bool intermediate = false, program_outputs = false, verify = false, share_memory_arenas = false;
  double rtol = 1e-5, atol = 1e-8;
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

Options parse(int argc, char** argv) {
  Options options;
  const std::map<std::string, std::function<void(const std::string&)>> valued = {
      {"--model", [&](const std::string& v) { options.model = v; }},
      {"--method", [&](const std::string& v) { options.methods = split(v); }},
      {"--inputs", [&](const std::string& v) { options.inputs = split(v); }},
      {"--executions", [&](const std::string& v) { options.executions = whole_number("--executions", v); }},
      {"--data", [&](const std::string& v) { options.data = v; }},
      {"--outputs", [&](const std::string& v) { options.outputs = v; }},
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
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    if (name == "--help" || name == "-h") {
      std::cout << kUsage;
      std::exit(0);
    }
    if (const auto found = switches.find(name); found != switches.end()) {
      *found->second = true;
      continue;
    }
    std::string value;
    const size_t equals = name.find('=');
    const bool attached = equals != std::string::npos;
    if (attached) {
      value = name.substr(equals + 1);
      name = name.substr(0, equals);
    }
    const auto found = valued.find(name);
    if (found == valued.end()) fail("there is no option " + name + "; see --help");
    if (!attached) {
      if (++i == argc) fail(name + " needs a value");
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

size_t number_of_elements(const std::vector<int32_t>& sizes) {
  size_t count = 1;
  for (const int32_t size : sizes) {
    if (size < 0) fail("a tensor has a negative size");
    count *= static_cast<size_t>(size);
  }
  return count;
}

TensorPtr make_tensor(
    std::vector<int32_t> sizes, std::vector<uint8_t> dim_order, ScalarType type, const uint8_t* data, size_t nbytes,
    const std::string& origin) {
  const size_t expected = number_of_elements(sizes) * executorch::runtime::elementSize(type);
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

std::vector<Inputs> bundled_inputs(const BundledSuite& suite) {
  std::vector<Inputs> sets;
  for (const auto& item : suite.cases) {
    Inputs inputs;
    for (const auto& value : item.inputs) {
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

// What is wrong with an output, empty if nothing is.
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

bool verify(const BundledCase& item, const std::vector<EValue>& outputs, const Options& options, const std::string& at) {
  if (item.expected_outputs.empty()) fail(at + ": there are no expected outputs to compare with");
  if (item.expected_outputs.size() != outputs.size()) {
    fail(at + ": " + std::to_string(outputs.size()) + " outputs, " + std::to_string(item.expected_outputs.size()) +
         " were expected");
  }
  bool fine = true;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto* expected = std::get_if<BundledTensor>(&item.expected_outputs[i]);
    if (!expected || !outputs[i].isTensor()) continue;
    const std::string problem = difference(*expected, outputs[i].toTensor(), options.rtol, options.atol);
    if (!problem.empty()) {
      std::cout << at << ": output " << i << " " << problem << "\n";
      fine = false;
    }
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

class Runner {
 public:
  explicit Runner(const Options& options) : options_(options), trace_(options) {
    file_ = read_file(options.model);
    const bool bundled = is_bundle(file_);
    if (bundled) bundle_ = read_bundle(file_);
    if (options.verify && !bundled) fail("--output-verification needs a .bpte, " + options.model + " is none");
    const uint8_t* program = bundled ? bundle_.program : file_.data();
    const size_t size = bundled ? bundle_.program_size : file_.size();
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
    check(module_->load(), "loading " + options.model);
  }

  // True if every output that was to be verified is as expected.
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
    if (!options_.inputs.empty()) return raw_inputs(*meta, options_.inputs);
    if (const auto* suite = bundle_.suite(method); suite && !suite->cases.empty()) return bundled_inputs(*suite);
    std::vector<Inputs> sets;
    sets.push_back(ones(*meta));
    return sets;
  }

  bool execute(const std::string& method, const Inputs& inputs, size_t set, size_t execution, bool several) {
    check(module_->load_method(method), "loading the method " + method);
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
    if (!suite || set >= suite->cases.size()) fail("the .bpte has no test set " + std::to_string(set) + " of " + method);
    return verify(suite->cases[set], *outputs, options_, method + ", test set " + std::to_string(set));
  }

  const Options& options_;
  Trace trace_;
  Bytes file_;
  Bundle bundle_;
  std::unique_ptr<void, Free> program_;
  std::unique_ptr<Module> module_;
};

}  // namespace

int main(int argc, char** argv) {
  executorch::runtime::runtime_init();
  try {
    const Options options = parse(argc, argv);
    return Runner(options).run() ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << "etviz_runner: " << error.what() << "\n";
    return 2;
  }
}
