// A BundledProgram: a program together with test inputs and the outputs that they should give.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace etviz {

using Bytes = std::vector<uint8_t>;

// A tensor as the bundle stores it: its bytes in the order of memory.
struct BundledTensor {
  int scalar_type = 0;
  std::vector<int32_t> sizes;
  std::vector<uint8_t> dim_order;
  const uint8_t* data = nullptr;
  size_t nbytes = 0;
};

using BundledValue = std::variant<std::monostate, BundledTensor, int64_t, bool, double>;

struct BundledCase {
  std::vector<BundledValue> inputs;
  std::vector<BundledValue> expected_outputs;
};

struct BundledSuite {
  std::string method;
  std::vector<BundledCase> cases;
};

// Points into the bytes that it was read from.
struct Bundle {
  std::vector<BundledSuite> suites;
  const uint8_t* program = nullptr;
  size_t program_size = 0;

  const BundledSuite* suite(const std::string& method) const;
};

bool is_bundle(const Bytes& file);

// Throws std::runtime_error if the file is damaged.
Bundle read_bundle(const Bytes& file);

}  // namespace etviz
