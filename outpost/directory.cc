#include "outpost/directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/os/files.h"

namespace moorage::outpost {
namespace {

constexpr size_t kMaxNameBytes = 128;
constexpr std::string_view kLetters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.+";

void require_name(std::string_view text, const char* what) {
  if (is_name(text)) return;
  throw Error(Code::invalid_argument,
              "not a valid " + std::string(what) + ": use letters, digits, '_', '-', '.' and '+'");
}

std::string checked(std::string path) {
  if (!path.starts_with('/') || path.find_first_not_of('/') == std::string::npos)
    throw Error(Code::invalid_argument, "the directory must be an absolute path");
  path.erase(path.find_last_not_of('/') + 1);
  make_private_directory(path);
  return path;
}

}  // namespace

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kMaxNameBytes && text[0] != '.' &&
         text.find_first_not_of(kLetters) == std::string_view::npos;
}

void make_private_directory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) base::throw_errno("make " + path);
  struct stat status {};
  base::check(lstat(path.c_str(), &status), "inspect " + path);
  if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid()) {
    throw Error(Code::permission_denied, path + " is not a directory of this user",
                "remove it, or choose another directory");
  }
  if ((status.st_mode & 077) != 0) {
    throw Error(Code::permission_denied, "other users may enter " + path, "chmod 700 " + path);
  }
}

Directory::Directory(std::string path) : path_(checked(std::move(path))) {
  make_private_directory(path_ + "/trees");
  make_private_directory(path_ + "/sandboxes");
}

std::string Directory::tree(const std::string& key) const {
  require_name(key, "key of a tree");
  return trees() + "/" + key;
}

std::string Directory::sandbox(const std::string& name) const {
  require_name(name, "name of a sandbox");
  return path_ + "/sandboxes/" + name;
}

std::vector<std::string> Directory::sandbox_names() const {
  return base::list_directory_if_exists(path_ + "/sandboxes");
}

std::vector<std::string> Directory::tree_keys() const {
  return base::list_directory_if_exists(trees());
}

}  // namespace moorage::outpost
