#include "layers/home_skeleton.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <mutex>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/os/atomic_file.h"
#include "base/os/fd.h"
#include "base/os/files.h"
#include "layers/ids.h"

namespace moorage::layers {
namespace {

constexpr std::array kSkeleton{".bashrc", ".profile", ".bash_logout", ".gitconfig"};

std::optional<std::string> skeleton_bytes(const std::string& name) {
  if (name != ".gitconfig") return base::read_file_if_exists("/etc/skel/" + name);
  // Without an identity an agent's first `git commit` fails; it may set its own.
  return "[user]\n\tname = user\n\temail = user@moorage.invalid\n";
}

// A file without contents: a power cut may leave an unsynced file so.
bool is_cut(const std::string& path, const std::string& name) {
  struct stat status;
  if (lstat((path + "/" + name).c_str(), &status) != 0 || status.st_size > 0) return false;
  return !skeleton_bytes(name).value_or("").empty();
}

}  // namespace

std::string ensure_home_skeleton(const std::string& store, uint32_t first_id) {
  static std::mutex one_maker;
  const std::lock_guard lock(one_maker);
  const std::string parent = store + "/images";
  const std::string path = parent + "/home";
  const bool made = base::path_exists(path + "/" + kSkeleton.back());
  std::vector<std::string> wanted;
  for (const char* name : kSkeleton) {
    if (!made || is_cut(path, name)) wanted.emplace_back(name);
  }
  if (wanted.empty()) return path;
  base::make_directories(path, 0755);
  const uint32_t owner = first_id + kUser;
  const base::Fd home = base::open_directory(path);
  base::check(fchown(home.get(), owner, owner), "set the owner of " + path);
  for (const auto& name : wanted) {
    const auto bytes = skeleton_bytes(name);
    if (!bytes) continue;
    base::AtomicFile file(home.get(), name, {.mode = 0644});
    file.write(*bytes);
    base::check(fchown(file.fd(), owner, owner), "set the owner of " + name);
    file.sync();
    file.commit();
  }
  base::sync_directory(path);
  base::sync_directory(parent);
  return path;
}

}  // namespace moorage::layers
