#include "bundle.h"

#include <cstring>
#include <stdexcept>

namespace etviz {
namespace {

// The installed package has no header of the bundle's flatbuffer, so its few tables are read here. Every read is checked
// against the end of the file. No two vectors of a written file share bytes, so all vectors together are no larger than
// the file: otherwise a small file could name one vector again and again.
class Reader {
 public:
  explicit Reader(const Bytes& file) : data_(file.data()), size_(file.size()) {}

  template <typename T>
  T number(size_t at) const {
    require(at, sizeof(T));
    T value;
    std::memcpy(&value, data_ + at, sizeof(T));
    return value;
  }

  // The target of an offset.
  size_t follow(size_t at) const { return at + number<uint32_t>(at); }

  // The position of a field of a table, 0 if it is absent.
  size_t field(size_t table, size_t index) const {
    const int64_t vtable = static_cast<int64_t>(table) - number<int32_t>(table);
    if (vtable < 0) damaged();
    const size_t slot = static_cast<size_t>(vtable) + 4 + 2 * index;
    if (slot + 2 > static_cast<size_t>(vtable) + number<uint16_t>(vtable)) return 0;
    const uint16_t offset = number<uint16_t>(slot);
    return offset ? table + offset : 0;
  }

  template <typename T>
  T scalar(size_t table, size_t index) const {
    const size_t at = field(table, index);
    return at ? number<T>(at) : T{};
  }

  // The position and number of a vector's elements.
  struct Span {
    size_t at = 0;
    size_t count = 0;
  };

  Span vector(size_t table, size_t index, size_t width) const {
    const size_t at = field(table, index);
    if (!at) return {};
    const size_t start = follow(at);
    const size_t count = number<uint32_t>(start);
    if (count > size_ / width) damaged();
    require(start + 4, count * width);
    read_ += 4 + count * width;
    if (read_ > size_) damaged();
    return {start + 4, count};
  }

  const uint8_t* at(size_t position) const { return data_ + position; }

 private:
  void require(size_t at, size_t count) const {
    if (at > size_ || count > size_ - at) damaged();
  }

  [[noreturn]] static void damaged() { throw std::runtime_error("the BundledProgram is damaged or cut off"); }

  const uint8_t* data_;
  size_t size_;
  mutable size_t read_ = 0;
};

BundledTensor read_tensor(const Reader& reader, size_t table) {
  BundledTensor tensor;
  tensor.scalar_type = reader.scalar<int8_t>(table, 0);
  const auto sizes = reader.vector(table, 1, 4);
  for (size_t i = 0; i < sizes.count; ++i) tensor.sizes.push_back(reader.number<int32_t>(sizes.at + 4 * i));
  const auto data = reader.vector(table, 2, 1);
  tensor.data = reader.at(data.at);
  tensor.nbytes = data.count;
  const auto order = reader.vector(table, 3, 1);
  tensor.dim_order.assign(reader.at(order.at), reader.at(order.at) + order.count);
  return tensor;
}

std::vector<BundledValue> read_values(const Reader& reader, size_t test_case, size_t field) {
  std::vector<BundledValue> values;
  const auto items = reader.vector(test_case, field, 4);
  for (size_t i = 0; i < items.count; ++i) {
    const size_t table = reader.follow(items.at + 4 * i);
    const uint8_t kind = reader.scalar<uint8_t>(table, 0);
    const size_t content = reader.field(table, 1);
    const size_t inner = content ? reader.follow(content) : 0;
    if (!inner) {
      values.emplace_back();
    } else if (kind == 1) {
      values.emplace_back(read_tensor(reader, inner));
    } else if (kind == 2) {
      values.emplace_back(reader.scalar<int64_t>(inner, 0));
    } else if (kind == 3) {
      values.emplace_back(reader.scalar<uint8_t>(inner, 0) != 0);
    } else if (kind == 4) {
      values.emplace_back(reader.scalar<double>(inner, 0));
    } else {
      values.emplace_back();
    }
  }
  return values;
}

}  // namespace

const BundledSuite* Bundle::suite(const std::string& method) const {
  for (const auto& item : suites) {
    if (item.method == method) return &item;
  }
  return nullptr;
}

bool is_bundle(const Bytes& file) { return file.size() > 8 && std::memcmp(file.data() + 4, "BP08", 4) == 0; }

Bundle read_bundle(const Bytes& file) {
  const Reader reader(file);
  const size_t root = reader.follow(0);
  Bundle bundle;
  const auto suites = reader.vector(root, 1, 4);
  for (size_t i = 0; i < suites.count; ++i) {
    const size_t table = reader.follow(suites.at + 4 * i);
    const auto name = reader.vector(table, 0, 1);
    BundledSuite suite{{reinterpret_cast<const char*>(reader.at(name.at)), name.count}, {}};
    const auto cases = reader.vector(table, 1, 4);
    for (size_t k = 0; k < cases.count; ++k) {
      const size_t item = reader.follow(cases.at + 4 * k);
      suite.cases.push_back({read_values(reader, item, 0), read_values(reader, item, 1)});
    }
    bundle.suites.push_back(std::move(suite));
  }
  const auto program = reader.vector(root, 2, 1);
  bundle.program = reader.at(program.at);
  bundle.program_size = program.count;
  return bundle;
}

}  // namespace etviz
