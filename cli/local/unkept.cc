#include "cli/local/unkept.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/log.h"

namespace moorage::cli {
namespace {

constexpr size_t kMostNamed = 3;
constexpr int kMostDepth = 100;

using Directory = std::unique_ptr<DIR, int (*)(DIR*)>;

enum class Kind { file, directory, special };

Kind kind_of(const std::string& path, unsigned char type) {
  struct stat found {};
  if (type == DT_UNKNOWN && ::lstat(path.c_str(), &found) == 0) type = IFTODT(found.st_mode);
  if (type == DT_DIR) return Kind::directory;
  const bool special = type == DT_FIFO || type == DT_SOCK || type == DT_CHR || type == DT_BLK;
  return special ? Kind::special : Kind::file;
}

// Calls `use` with names until it returns false. A directory that cannot be read has none.
void each_entry(const std::string& path, const std::function<bool(const std::string&, Kind)>& use) {
  const Directory directory(::opendir(path.c_str()), ::closedir);
  if (!directory) return;
  while (const dirent* entry = ::readdir(directory.get())) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (!use(name, kind_of(path + "/" + name, entry->d_type))) return;
  }
}

bool holds_only_directories(const std::string& path, int depth = 0) {
  if (depth == kMostDepth) return false;
  bool only = true;
  each_entry(path, [&](const std::string& name, Kind kind) {
    only = kind == Kind::directory && name != ".git" &&
           holds_only_directories(path + "/" + name, depth + 1);
    return only;
  });
  return only;
}

std::vector<std::string> empty_directories(const std::string& top, const GitCall& in_tree) {
  std::vector<std::string> found;
  const std::string text =
      run_git({"ls-files", "--others", "--directory", "--exclude-standard", "-z"}, in_tree);
  for (const std::string_view path : records(text)) {
    if (path.ends_with('/') && holds_only_directories(top + "/" + std::string(path)))
      found.emplace_back(path);
  }
  return found;
}

std::vector<std::string> special_files(const std::string& top,
                                       const std::vector<std::string>& files, GitCall in_tree) {
  std::set<std::string> directories{""};
  for (const std::string& file : files) {
    for (size_t slash = file.rfind('/'); slash != std::string::npos && slash > 0;
         slash = file.rfind('/', slash - 1)) {
      if (!directories.insert(file.substr(0, slash + 1)).second) break;
    }
  }
  std::vector<std::string> found;
  for (const std::string& directory : directories) {
    each_entry(top + "/" + directory, [&](const std::string& name, Kind kind) {
      if (kind == Kind::special) found.push_back(directory + name);
      return true;
    });
  }
  if (found.empty()) return found;
  for (const std::string& path : found) in_tree.input.append(path).push_back('\0');
  in_tree.more["GIT_LITERAL_PATHSPECS"] = "0";  // else check-ignore refuses to run
  const auto ignored = try_git({"check-ignore", "-z", "--stdin"}, in_tree);
  if (!ignored.ok() && ignored.exit_code != 1)  // 1: none
    throw Error(Code::io, "git check-ignore failed in " + top + ": " + trimmed(ignored.error));
  for (const std::string_view path : records(ignored.output)) std::erase(found, path);
  return found;
}

std::vector<std::string> odd_modes(const std::string& top, const std::vector<std::string>& files) {
  constexpr std::array<mode_t, 4> kUsual{0644, 0755, 0664, 0775};
  std::vector<std::string> found;
  for (const std::string& file : files) {
    struct stat status {};
    if (::lstat((top + "/" + file).c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    const mode_t mode = status.st_mode & 07777;
    if (std::find(kUsual.begin(), kUsual.end(), mode) == kUsual.end()) found.push_back(file);
  }
  return found;
}

}  // namespace

std::string some_of(const std::vector<std::string>& names) {
  std::string text;
  for (size_t n = 0; n < std::min(kMostNamed, names.size()); ++n)
    text += (n ? ", " : "") + base::escape_for_message(names[n]);
  if (names.size() > kMostNamed)
    text += " and " + std::to_string(names.size() - kMostNamed) + " more";
  return text;
}

std::vector<std::string> unkept(const std::string& top, const std::vector<std::string>& files,
                                const GitCall& in_tree) {
  std::vector<std::string> notes;
  const auto note = [&notes](const char* what, const std::vector<std::string>& names) {
    if (!names.empty()) notes.push_back(what + some_of(names));
  };
  note("empty directories stay here: ", empty_directories(top, in_tree));
  note("pipes, sockets and devices stay here: ", special_files(top, files, in_tree));
  note("modes become 644 or 755: ", odd_modes(top, files));
  return notes;
}

}  // namespace moorage::cli
