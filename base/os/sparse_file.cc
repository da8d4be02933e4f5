#include "base/os/sparse_file.h"

#include <unistd.h>

#include <cstring>

#include "base/error.h"
#include "base/os/fd.h"

namespace moorage::base {
namespace {

constexpr size_t kPart = 4096;  // a block of usual file systems

bool is_zero(std::string_view bytes) {
  return bytes[0] == '\0' && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

// The beginning of `bytes` whose parts are all zero, or all not.
std::string_view run_of(std::string_view bytes, bool zero) {
  size_t end = 0;
  while (end < bytes.size() && is_zero(bytes.substr(end, kPart)) == zero) end += kPart;
  return bytes.substr(0, end);
}

}  // namespace

void SparseFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const bool zero = is_zero(bytes.substr(0, kPart));
    const std::string_view run = run_of(bytes, zero);
    if (!zero) {
      write_at(fd_, run, position_);
      written_end_ = position_ + run.size();
    }
    position_ += run.size();
    bytes.remove_prefix(run.size());
  }
}

void SparseFile::finish() {
  if (written_end_ == position_) return;
  check(::ftruncate(fd_, static_cast<off_t>(position_)), "set the length of a file");
  written_end_ = position_;
}

}  // namespace moorage::base
