#include "layers/mapped_files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <cstdlib>
#include <utility>

#include "base/os/fd.h"
#include "base/os/files.h"
#include "base/os/open_beneath.h"
#include "base/parts.h"

namespace moorage::layers {
namespace {

// /proc escapes newlines and backslashes as \ooo.
std::string unescaped(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 3 >= text.size()) {
      plain += text[i];
      continue;
    }
    plain +=
        static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
    i += 3;
  }
  return plain;
}

// The path and the directory are untrusted: resolved without leaving the directory.
ino_t inode_at(int top, const std::string& path) {
  const Fd file = base::try_open_beneath(top, path, O_PATH);
  struct stat status;
  if (!file || fstat(file.get(), &status) != 0) return 0;
  return status.st_ino;
}

}  // namespace

std::vector<Mapping> shared_mappings(std::string_view maps, const std::string& target) {
  // 7f1-7f2 rw-s 00000000 00:2f 1234      /workspace/build/db
  constexpr size_t kColumnsBefore = 5;
  std::vector<Mapping> mappings;
  while (!maps.empty()) {
    const std::string_view line = base::take_until(maps, '\n');
    size_t at = 0;
    std::string_view permissions;
    std::string inode;
    for (size_t column = 0; column < kColumnsBefore && at != std::string_view::npos; ++column) {
      const size_t end = line.find(' ', at);
      if (column == 1) permissions = line.substr(at, end - at);
      if (column == 4) inode = line.substr(at, end - at);
      at = line.find_first_not_of(' ', end);
    }
    if (at == std::string_view::npos || permissions.size() < 4) continue;
    if (permissions[1] != 'w' || permissions[3] != 's') continue;
    const std::string_view path = line.substr(at);
    const bool inside =
        path.size() > target.size() + 1 && path.starts_with(target) && path[target.size()] == '/';
    if (inside)
      mappings.push_back(
          {unescaped(path.substr(target.size() + 1)), std::strtoull(inode.c_str(), nullptr, 10)});
  }
  return mappings;
}

std::set<ino_t> mapped_inodes(const std::vector<pid_t>& processes, const std::string& layer) {
  constexpr std::array<std::pair<const char*, const char*>, 2> kParts{
      {{"/workspace", "/tree/upper"}, {"/home/user", "/home/upper"}}};
  std::set<ino_t> inodes;
  std::array<Fd, kParts.size()> tops;
  for (size_t part = 0; part < kParts.size(); ++part)
    tops[part] = base::open_directory(layer + kParts[part].second);
  for (const pid_t pid : processes) {
    // A process that has ended, even during this read, maps nothing.
    const auto maps = base::read_file_if_exists("/proc/" + std::to_string(pid) + "/maps");
    if (!maps) continue;
    for (size_t part = 0; part < kParts.size(); ++part) {
      for (const auto& mapping : shared_mappings(*maps, kParts[part].first)) {
        inodes.insert(mapping.inode);
        inodes.insert(inode_at(tops[part].get(), mapping.path));
      }
    }
  }
  inodes.erase(0);
  return inodes;
}

}  // namespace moorage::layers
