// Random edits of a mounted tree by the agent's user, and a view of a tree for comparison.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "layers/storage_fixture.h"

namespace moorage::layers {

namespace fs = std::filesystem;
using View = std::map<std::string, std::string>;  // path -> "f" content, "l" target, "d"

inline std::string describe(const std::string& path) {
  if (fs::is_symlink(path)) return "l" + fs::read_symlink(path).string();
  if (fs::is_directory(path)) return "d";
  return "f" + base::read_file(path);
}

inline View view_of_directory(const std::string& root) {
  View view;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    view[entry.path().string().substr(root.size() + 1)] = describe(entry.path());
  }
  return view;
}

inline std::string join(const std::string& directory, const std::string& name) {
  return directory.empty() ? name : directory + "/" + name;
}

// Makes random edits as the agent's user in a mounted tree; skips edits that the kernel refuses.
class Editor {
 public:
  Editor(std::string root, uint32_t seed) : root_(std::move(root)), random_(seed) {}

  void edit(int count) {
    syscall(SYS_setfsgid, kFirstHostId + kAgent);
    syscall(SYS_setfsuid, kFirstHostId + kAgent);
    for (int i = 0; i < count; ++i) edit_once();
    syscall(SYS_setfsuid, 0);
    syscall(SYS_setfsgid, 0);
  }

 private:
  size_t pick(size_t below) { return std::uniform_int_distribution<size_t>(0, below - 1)(random_); }
  std::string any_path() {
    std::vector<std::string> paths{""};
    for (const auto& [path, text] : view_of_directory(root_)) paths.push_back(path);
    return paths[pick(paths.size())];
  }
  std::string any_name() {
    std::string path = any_path();
    if (fs::is_symlink(root_ + "/" + path) || !fs::is_directory(root_ + "/" + path)) return path;
    return join(path, std::string(1, static_cast<char>('a' + pick(6))));
  }

  void edit_once() {
    const std::string path = root_ + "/" + any_name();
    const std::string other = root_ + "/" + any_path();
    std::error_code ignored;
    switch (pick(8)) {
      case 0:
      case 1: {
        base::Fd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0644));
        if (fd) base::write_all(fd.get(), std::to_string(pick(1000)));
        break;
      }
      case 2:
        mkdir(path.c_str(), 0755);
        break;
      case 3:
        if (other != root_ + "/") fs::remove_all(other, ignored);
        break;
      case 4:
        if (symlink("target", path.c_str()) < 0 && pick(2)) unlink(path.c_str());
        break;
      default:
        if (other != root_ + "/") rename(other.c_str(), path.c_str());
    }
  }

  std::string root_;
  std::mt19937 random_;
};

inline void fill_base(const StorageFixture& fixture) {
  for (const std::string directory : {"a", "a/b", "a/b/c", "d", "d/e", "f"}) {
    fixture.make_directory(directory);
    for (const std::string name : {"a", "x", "y"}) {
      const std::string path = directory + "/" + name;
      if (!base::path_exists(fixture.chain.base_tree + "/" + path) && path != "a/b") {
        fixture.make_file(path, "base " + path, 0644);
      }
    }
  }
}

}  // namespace moorage::layers
