#include "repo_cache/workspace_git.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/files.h"
#include "base/parts.h"

namespace moorage::repo_cache {

namespace {

constexpr const char* kObjectsInside = "/.moorage/objects";

// A quoted value may have any byte; these four need escapes.
std::string quote(const std::string& value) {
  std::string result = "\"";
  for (char c : value) {
    if (c == '"' || c == '\\') result += '\\';
    if (c == '\n') {
      result += "\\n";
    } else if (c == '\t') {
      result += "\\t";
    } else {
      result += c;
    }
  }
  return result + "\"";
}

// Whether a reference of this name leaves no place for the other.
bool excludes(std::string_view name, std::string_view other) {
  return other.starts_with(name) && (other.size() == name.size() || other[name.size()] == '/');
}

void put(int directory_fd, const char* name, std::string_view bytes) {
  const Fd fd = base::open_file_at(directory_fd, name, O_WRONLY | O_CREAT | O_EXCL, 0644);
  base::write_all(fd.get(), bytes);
}

}  // namespace

std::string git_config(const std::string& origin_url, const Rewritten& rewritten) {
  std::string text =
      "[core]\n"
      "\trepositoryformatversion = 0\n"
      "\tfilemode = true\n"
      "\tbare = false\n"
      "\tlogallrefupdates = true\n"
      // The tree is shared through overlays, where inode, device and ctime do not identify content.
      "\tcheckStat = minimal\n"
      "\ttrustctime = false\n";
  if (!origin_url.empty()) {
    text += "[remote \"origin\"]\n\turl = " + quote(origin_url) +
            "\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n";
  }
  for (const auto& [host, beginnings] : rewritten) {
    text += "[url " + quote("https://" + host + "/") + "]\n";
    for (const std::string& ssh : beginnings) text += "\tinsteadOf = " + quote(ssh) + "\n";
  }
  return text;
}

std::string with_branch(const std::string& packed_refs, const std::string& ref,
                        const std::string& commit) {
  const std::string added = commit + " " + ref + "\n";
  std::string result = "# pack-refs with: peeled fully-peeled sorted \n";
  result.reserve(packed_refs.size() + added.size());
  std::string_view rest = packed_refs;
  bool is_added = false;
  bool is_left_out = false;
  while (!rest.empty()) {
    const std::string_view line = base::take_until(rest, '\n');
    const bool is_peeled = line.starts_with('^');  // belongs to the line before it
    if (line.empty() || line.starts_with('#') || (is_peeled && is_left_out)) continue;
    if (!is_peeled) {
      const std::string_view name = line.substr(line.find(' ') + 1);
      is_left_out = excludes(name, ref) || excludes(ref, name);
      if (is_left_out) continue;
      if (!is_added && name > ref) {
        result += added;
        is_added = true;
      }
    }
    result.append(line).append("\n");
  }
  return is_added ? result : result + added;
}

void write_head_and_index(int upper, const std::string& commit, const std::string& index) {
  if (mkdirat(upper, ".git", 0755) < 0 && errno != EEXIST) base::throw_errno("create .git");
  const Fd git = base::open_file_at(upper, ".git", O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  put(git.get(), "HEAD", commit + "\n");
  put(git.get(), "index", index);
}

void write_git_directory(const std::string& tree, const WorkspaceGit& git) {
  const std::string path = tree + "/.git";
  base::check(mkdir(path.c_str(), 0755), "create .git");
  const Fd directory = base::open_directory(path);
  for (const char* name :
       {"refs", "refs/heads", "refs/tags", "objects", "objects/info", "objects/pack", "info"}) {
    base::check(mkdirat(directory.get(), name, 0755), "create .git");
  }
  put(directory.get(), "HEAD", git.commit + "\n");
  put(directory.get(), "config", git_config(git.origin_url));
  put(directory.get(), "objects/info/alternates", std::string(kObjectsInside) + "\n");
  put(directory.get(), "info/exclude", "");
  put(directory.get(), "index", git.index);
}

}  // namespace moorage::repo_cache
