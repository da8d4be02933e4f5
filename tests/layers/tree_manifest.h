// All properties of a tree as lines that can be compared.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "base/digest.h"
#include "base/error.h"
#include "base/os/files.h"

namespace moorage::layers {

struct TreeManifest {
  struct Options {
    bool overlay_marks = true;
    bool link_counts = true;
    bool first_names = true;  // of files with several names
    bool data_ranges = true;  // they depend on the file system
  };
  std::map<std::string, std::string> lines;
  std::map<std::pair<dev_t, ino_t>, std::string> first;
  Options options;

  TreeManifest(const std::string& top, Options given) : options(given) { look(top, "."); }
  explicit TreeManifest(const std::string& top) : TreeManifest(top, Options{}) {}

  void look(const std::string& top, const std::string& path) {
    const std::string full = top + "/" + path;
    struct stat status;
    base::check(lstat(full.c_str(), &status), full);
    std::string line = std::to_string(status.st_mode) + " " + std::to_string(status.st_uid) + ":" +
                       std::to_string(status.st_gid);
    const bool whiteout = S_ISCHR(status.st_mode) && status.st_rdev == 0;
    if (!whiteout) {
      line += " " + std::to_string(status.st_mtim.tv_sec) + "." +
              std::to_string(status.st_mtim.tv_nsec);
    }
    if (!S_ISDIR(status.st_mode) && !whiteout) {
      if (options.link_counts) line += " links " + std::to_string(status.st_nlink);
      const std::string& name =
          first.emplace(std::pair{status.st_dev, status.st_ino}, path).first->second;
      if (options.first_names) line += " as " + name;
    }
    if (S_ISLNK(status.st_mode)) {
      std::string target(4096, '\0');
      target.resize(static_cast<size_t>(readlink(full.c_str(), target.data(), target.size())));
      line += " -> " + target;
    }
    if (S_ISREG(status.st_mode)) {
      line += " size " + std::to_string(status.st_size);
      if (options.data_ranges) line += " data" + data_of(full);
      if (status.st_size < 64 << 20) line += " " + base::sha256_hex(base::read_file(full));
    }
    line += attributes(full);
    lines[path] = line;
    if (!S_ISDIR(status.st_mode)) return;
    for (const auto& name : base::list_directory(full)) look(top, path + "/" + name);
  }

  // The ranges with data. Block counts do not work: they include the file system's metadata, which
  // depends on when the data was written.
  static std::string data_of(const std::string& full) {
    const base::Fd file = base::open_file(full, O_RDONLY);
    std::string text;
    for (off_t at = 0; (at = lseek(file.get(), at, SEEK_DATA)) >= 0;) {
      text += " " + std::to_string(at);
      at = lseek(file.get(), at, SEEK_HOLE);
      text += "-" + std::to_string(at);
    }
    return text;
  }

  std::string attributes(const std::string& full) const {
    std::map<std::string, std::string> found;
    char names[65536];
    const ssize_t size = llistxattr(full.c_str(), names, sizeof names);
    for (ssize_t at = 0; at < size; at += static_cast<ssize_t>(strlen(names + at)) + 1) {
      const std::string name = names + at;
      if (name == "trusted.overlay.origin" || name == "trusted.overlay.impure") continue;
      if (name.starts_with("trusted.") && !options.overlay_marks) continue;
      char value[65536];
      const ssize_t length = lgetxattr(full.c_str(), names + at, value, sizeof value);
      found[name] = std::string(value, static_cast<size_t>(length));
    }
    std::string text;
    for (const auto& [name, value] : found) text += " [" + name + "=" + base::to_hex(value) + "]";
    return text;
  }
};

}  // namespace moorage::layers
