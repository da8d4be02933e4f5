// Integers in the format of the store and its copies on disk: little endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace moorage::base {

template <typename Number>
void put_number(char* at, Number value) {
  for (size_t i = 0; i < sizeof value; ++i)
    at[i] = static_cast<char>(static_cast<uint64_t>(value) >> (8 * i));
}

template <typename Number>
void append_number(std::string& out, Number value) {
  out.resize(out.size() + sizeof value);
  put_number(out.data() + out.size() - sizeof value, value);
}

template <typename Number>
Number number_at(const char* at) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(Number); ++i)
    value |= uint64_t{static_cast<unsigned char>(at[i])} << (8 * i);
  return static_cast<Number>(value);
}

}  // namespace moorage::base
