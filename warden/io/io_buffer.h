// The one large buffer of this process: all reads use it, one event at a time, and its contents are
// consumed before the handler returns. Single-threaded, never nested.
#pragma once

#include <array>
#include <span>

namespace moorage::warden {

inline std::span<char> io_buffer() {
  static std::array<char, 64 << 10> buffer;
  return buffer;
}

}  // namespace moorage::warden
