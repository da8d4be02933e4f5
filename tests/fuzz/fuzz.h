// The common parts of the fuzz targets. A target is one function, LLVMFuzzerTestOneInput, that
// passes the bytes to product code, which may refuse them with base::Error; any other exception
// ends the target, as does require(). tests/fuzz/run.py runs a target without network, in a file
// system of its own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace moorage::fuzz {

// Ends the target, so that the input is saved.
void require(bool condition, std::string_view what);

template <typename Call>
bool refused(Call&& call) {
  try {
    call();
    return false;
  } catch (const base::Error& error) {
    require(!error.message().empty(), "an error says what is wrong");
    return true;
  }
}

// Private to this process, empty at start.
const std::string& scratch_directory();
// A file outside of every tree of a target: its text, new in each process, must never appear.
struct Secret {
  std::string path;
  std::string text;
};
const Secret& secret();

// Reads an input as instructions, padded with zeros.
class Script {
 public:
  Script(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}
  bool over() const { return rest_.empty(); }
  uint8_t byte() {
    if (rest_.empty()) return 0;
    const auto value = static_cast<uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return value;
  }
  size_t below(size_t count) { return byte() % count; }
  std::string_view take(size_t bytes) {
    const std::string_view taken = rest_.substr(0, std::min(bytes, rest_.size()));
    rest_.remove_prefix(taken.size());
    return taken;
  }
  std::string_view piece() { return take(byte()); }  // prefixed with its length
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

}  // namespace moorage::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
