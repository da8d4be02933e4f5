// The file API on two hostile trees, /workspace and the home. No request may read or change
// anything outside.
#include "base/os/fd.h"
#include "base/os/files.h"
#include "hostile_tree.h"
#include "layers/tree_files.h"

namespace moorage {
namespace {

constexpr uint32_t kOwner = 1'900'001'000;

void read(const layers::TreeFiles& files, const std::string& path) {
  uint64_t bytes = 0;
  const base::Fd file = files.open_for_reading(path, &bytes);
  const std::string text = base::read_up_to(file.get(), 4096);
  fuzz::require(text.find(fuzz::secret().text) == std::string::npos, "nothing outside is read");
}

void write(const layers::TreeFiles& files, const std::string& path, uint8_t how) {
  const auto mode = how & 1 ? std::nullopt : std::optional<uint32_t>(0600);
  auto writer = files.begin_write(path, mode);
  writer.write("written");
  if (how & 2) writer.commit();
}

void ask(const layers::TreeFiles& files, fuzz::Script& script) {
  const uint8_t what = script.byte();
  const std::string path = fuzz::any_path(script);
  switch (what % 8) {
    case 0:
      files.stat(path);
      return;
    case 1:
      files.list(path, 100);
      return;
    case 2:
      return read(files, path);
    case 3:
      return write(files, path, script.byte());
    case 4:
      return files.make_directory(path);
    case 5:
      return files.make_symlink(fuzz::any_path(script), path);
    case 6:
      return files.move(path, fuzz::any_path(script));
    default:
      return files.remove(path, script.byte() & 1);
  }
}

}  // namespace
}  // namespace moorage

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moorage;
  fuzz::Script script(data, size);
  const fuzz::Secret& secret = fuzz::secret();
  if (script.rest().find(secret.text) != std::string_view::npos) return -1;
  fuzz::HostileTree tree(fuzz::scratch_directory() + "/tree");
  fuzz::HostileTree home(fuzz::scratch_directory() + "/home");
  tree.grow(script);
  home.grow(script);
  const layers::TreeFiles files({{"/workspace", tree.fd()}, {"/home/user", home.fd()}}, kOwner);
  for (size_t asked = 0; asked < fuzz::kMaxSteps && !script.over(); ++asked) {
    fuzz::refused([&] { ask(files, script); });
  }
  fuzz::require(base::read_file(secret.path) == secret.text + "\n", "nothing outside is changed");
  fuzz::require(base::list_directory(fuzz::scratch_directory() + "/outside").size() == 1,
                "nothing outside is made");
  return 0;
}
