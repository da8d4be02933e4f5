#include "fuzz.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/os/files.h"

namespace moorage::fuzz {

void require(bool condition, std::string_view what) {
  if (condition) return;
  const std::string line = "\nrequired, and not so: " + std::string(what) + "\n";
  [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, line.data(), line.size());
  abort();
}

const std::string& scratch_directory() {
  static const std::string path = [] {
    const char* parent = getenv("TMPDIR");
    std::string made = std::string(parent ? parent : "/tmp") + "/moorage-fuzz-XXXXXX";
    require(mkdtemp(made.data()) != nullptr, "a directory below TMPDIR can be made");
    return made;
  }();
  return path;
}

const Secret& secret() {
  static const Secret made = [] {
    const std::string text =
        base::sha256_hex(scratch_directory() + std::to_string(getpid()) + "secret");
    base::make_directories(scratch_directory() + "/outside");
    Secret secret{scratch_directory() + "/outside/secret", text};
    base::write_file(secret.path, text + "\n", 0644);
    return secret;
  }();
  return made;
}

}  // namespace moorage::fuzz
