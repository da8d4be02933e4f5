#include "backends/engine/container_files.h"

#include <fcntl.h>

#include "backends/trust.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/fd.h"
#include "base/os/files.h"

namespace moorage::backends {
namespace {

constexpr size_t kMaxBundle = 4 << 20;

}  // namespace

std::optional<std::string> read_inside(int root, const std::string& path, size_t max_bytes) {
  try {
    const Fd file = base::open_regular_in_root(root, path, O_RDONLY);
    return base::read_up_to(file.get(), max_bytes);
  } catch (const Error& error) {
    if (error.code() == Code::not_found || error.code() == Code::invalid_argument)
      return std::nullopt;
    throw;
  }
}

ShownFiles write_trust(const base::ProcessIdentity& init, const std::string& certificates,
                       const std::string& directory) {
  const Fd root = base::open_directory("/proc/" + std::to_string(init.pid) + "/root");
  const std::string own = base::read_file(certificates + "/" + kOwnCertificates);
  ShownFiles files;
  for (const char* place : kBundles) {
    const auto bundle = read_inside(root.get(), place, kMaxBundle);
    if (!bundle) continue;
    if (bundle->size() == kMaxBundle) {
      base::log(base::LogLevel::warning, "docker.bundle_too_large", {{"path", place}});
      continue;
    }
    const std::string copy = directory + "/bundle-" + std::to_string(files.size()) + ".pem";
    base::write_file(copy, *bundle + "\n" + own, 0644);
    files.emplace_back(copy, place);
  }
  for (const char* place : kJavaStores) {
    if (read_inside(root.get(), place, 1))
      files.emplace_back(certificates + "/" + kJavaCertificates, place);
  }
  return files;
}

}  // namespace moorage::backends
