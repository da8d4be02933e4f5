#include "hostile_tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/os/files.h"

namespace moorage::fuzz {
namespace {

constexpr std::string_view kNames[] = {
    "a",   "b",    "c",  "d",        "link", ".gitignore", ".gitattributes", "f.txt", "*",
    "a b", ".git", "\n", "\xff\xfe", "..",   "."};

std::string link_target(Script& script) {
  switch (script.below(6)) {
    case 0:
      return secret().path;
    case 1:
      return "../../../../../../.." + secret().path;
    case 2:
      return "/proc/self/root" + secret().path;
    case 3:
      return "../outside/secret";
    default:
      return any_path(script);
  }
}

std::string redirect(Script& script) {
  return script.below(2) == 0 ? any_path(script) : std::string(script.piece());
}

}  // namespace

std::string any_name(Script& script) {
  const uint8_t choice = script.byte();
  if (choice < 200) return std::string(kNames[choice % std::size(kNames)]);
  std::string name(script.take(choice == 255 ? 255 : choice - 199));
  std::replace(name.begin(), name.end(), '/', '_');
  std::replace(name.begin(), name.end(), '\0', '0');
  return name.empty() ? "empty" : name;
}

std::string any_path(Script& script) {
  const uint8_t shape = script.byte();
  std::string path = shape & 1 ? "/" : "";
  if (shape & 2) path = "/workspace/";
  for (int parts = shape >> 5; parts > 0; --parts) path += any_name(script) + "/";
  return path + (shape & 4 ? "" : any_name(script));
}

HostileTree::HostileTree(std::string path) : path_(std::move(path)) {
  base::make_directories(path_, 0755);
  root_ = base::open_directory(path_);
}

HostileTree::~HostileTree() { base::remove_tree(path_); }

void HostileTree::grow(Script& script) {
  for (size_t steps = 0; steps < kMaxSteps && !script.over(); ++steps) {
    if (script.rest().starts_with("\xff\xff")) {
      script.take(2);
      return;
    }
    step(script);
  }
}

// Operations that the kernel refuses are skipped.
void HostileTree::step(Script& script) {
  const uint8_t what = script.byte();
  const std::string path = directories_[script.below(directories_.size())] + "/" + any_name(script);
  const int root = root_.get();
  switch (what % 12) {
    case 0:
    case 1:
      if (mkdirat(root, path.c_str(), 0755) == 0) directories_.push_back(path);
      return;
    case 2:
    case 3: {
      const base::Fd file(
          openat(root, path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
      if (file) base::write_all(file.get(), script.piece());
      return;
    }
    case 4:
    case 5:
      (void)!symlinkat(link_target(script).c_str(), root, path.c_str());
      return;
    case 6:
      mknodat(root, path.c_str(), S_IFIFO | 0666, 0);
      return;
    case 7:
      mknodat(root, path.c_str(), S_IFCHR | 0666, makedev(0, 0));  // a whiteout
      return;
    case 8:
      mknodat(root, path.c_str(), script.below(2) ? S_IFSOCK | 0666 : S_IFCHR | 0666,
              makedev(1, 5));
      return;
    case 9:
      fchmodat(root, path.c_str(), script.byte() << 4, AT_SYMLINK_NOFOLLOW);
      return;
    default:
      set_attribute(script, path);
  }
}

void HostileTree::set_attribute(Script& script, const std::string& path) const {
  const std::string full = path_ + "/" + path;
  const auto set = [&](const char* name, const std::string& value) {
    lsetxattr(full.c_str(), name, value.data(), value.size(), 0);
  };
  switch (script.below(6)) {
    case 0:
      return set("trusted.overlay.opaque", "y");
    case 1:
      return set("trusted.overlay.opaque", script.below(2) ? "x" : redirect(script));
    case 2:
    case 3:
      return set("trusted.overlay.redirect", redirect(script));
    case 4:
      return set("trusted.overlay.whiteout", "");
    default:
      return set("trusted.overlay.metacopy", redirect(script));
  }
}

}  // namespace moorage::fuzz
