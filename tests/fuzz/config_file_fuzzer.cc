// The configuration file: read, or refused with a position.
#include "base/os/files.h"
#include "config/load.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moorage;
  static const std::string path = fuzz::scratch_directory() + "/moorage.yaml";
  base::write_file(path, {reinterpret_cast<const char*>(data), size});
  config::LoadOptions options;
  options.file = path;
  fuzz::refused([&] { config::show_text(config::load(options).shown); });
  return 0;
}
