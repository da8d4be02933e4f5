#include "cli/local/git_copy.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/os/fd.h"
#include "base/parts.h"
#include "cli/local/git_calls.h"

namespace moorage::cli {
namespace {

constexpr std::string_view kObjectsInside = "/.moorage/objects";

// Not the index: git trusts its paths, and `git checkout` would write one named .git/hooks/x.
constexpr std::array<std::string_view, 15> kKept{
    "HEAD",        "ORIG_HEAD",   "FETCH_HEAD",   "MERGE_HEAD",       "MERGE_MSG",
    "MERGE_MODE",  "REVERT_HEAD", "SQUASH_MSG",   "CHERRY_PICK_HEAD", "packed-refs",
    "description", "shallow",     "info/exclude", "COMMIT_EDITMSG",   "info/sparse-checkout"};
constexpr std::array<std::string_view, 3> kKeptBelow{"refs/", "logs/", "objects/"};

}  // namespace

bool is_git_name(std::string_view name) {
  return name.size() == 4 && name[0] == '.' && (name[1] | 0x20) == 'g' && (name[2] | 0x20) == 'i' &&
         (name[3] | 0x20) == 't';
}

bool keeps_git_file(std::string_view path) {
  if (path == kAlternates || path == "objects/info/http-alternates") return false;
  if (std::find(kKept.begin(), kKept.end(), path) != kKept.end()) return true;
  return std::any_of(kKeptBelow.begin(), kKeptBelow.end(),
                     [path](std::string_view below) { return path.starts_with(below); });
}

bool enters_git_directory(std::string_view path) {
  const std::string_view first = path.substr(0, path.find('/'));
  return first == "refs" || first == "logs" || first == "objects" || path == "info";
}

bool borrows_objects(std::string_view alternates) {
  while (!alternates.empty()) {
    if (base::take_until(alternates, '\n') == kObjectsInside) return true;
  }
  return false;
}

std::string new_git_config(const std::string& origin) {
  std::string text =
      "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n"
      "\tlogallrefupdates = true\n";
  const bool plain = std::none_of(origin.begin(), origin.end(), [](unsigned char letter) {
    return letter <= ' ' || letter == 0x7f || letter == '"' || letter == '\\';
  });
  if (origin.find(':') == std::string::npos || origin.find("::") != std::string::npos || !plain)
    return text;
  return text + "[remote \"origin\"]\n\turl = \"" + origin +
         "\"\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n";
}

Fd fetch_objects(RemoteFiles& files, const std::string& git_directory) {
  std::string name = git_directory + "/pack-XXXXXX";  // NFS and others lack O_TMPFILE
  Fd pack(base::check(::mkostemp(name.data(), O_CLOEXEC), "create a pack"));
  ::unlink(name.c_str());
  files.read_objects([&pack](std::string_view bytes) { base::write_all(pack.get(), bytes); });
  return pack;
}

bool add_objects(int pack_fd, const std::string& git_directory) {
  base::check(::lseek(pack_fd, 0, SEEK_SET), "rewind the pack");
  GitCall call;
  call.directory = git_directory;
  call.more = {{"GIT_DIR", "."}};
  call.input_fd = pack_fd;
  return try_git({"index-pack", "--stdin"}, call).ok();
}

bool make_index(const std::string& git_directory) {
  GitCall call;
  call.directory = git_directory;
  call.more = {{"GIT_DIR", "."}};
  if (!try_git({"rev-parse", "--verify", "--quiet", "HEAD"}, call).ok()) return true;  // no commit
  return try_git({"read-tree", "HEAD"}, call).ok();
}

}  // namespace moorage::cli
