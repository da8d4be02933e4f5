#include "base/os/boot_id.h"

#include "base/os/files.h"

namespace moorage::base {

const std::string& boot_id() {
  static const std::string id = [] {
    std::string text = read_file("/proc/sys/kernel/random/boot_id");
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
  }();
  return id;
}

}  // namespace moorage::base
