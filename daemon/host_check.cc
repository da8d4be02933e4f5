#include "daemon/host_check.h"

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "base/os/files.h"

namespace moorage::daemon {
namespace {

// The store's directory, or its nearest existing parent.
std::string existing_part(std::string path) {
  while (!base::path_exists(path)) path = path.substr(0, std::max<size_t>(1, path.rfind('/')));
  return path;
}

}  // namespace

int check_host(const Settings& settings) {
  backends::ProbeOptions options = settings.probe;
  const bool there = settings.image.image.empty() || layers::StoreImage::is_mounted(settings.image);
  options.store = there ? existing_part(options.store) : "";
  bool all = true;
  for (const backends::Check& check : backends::probe_host(options)) {
    all = all && check.ok;
    const std::string hint = check.hint.empty() ? "" : "; " + check.hint;
    std::printf("%-7s %-18s %s%s\n", check.ok ? "ok" : "missing", check.name.c_str(),
                base::escape_for_message(check.text).c_str(),
                base::escape_for_message(hint).c_str());
  }
  return all ? 0 : 1;
}

}  // namespace moorage::daemon
