#include "cli/local/ignored.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/os/file_time.h"
#include "cli/local/tree_copy.h"
#include "cli/local/unkept.h"

namespace moorage::cli {
namespace {

std::vector<std::string> paths_of(std::vector<std::string> options, const GitCall& in_tree) {
  options.insert(options.begin(), {"ls-files", "-z"});
  const std::string text = run_git(options, in_tree);
  std::vector<std::string> paths;
  for (const std::string_view path : records(text)) paths.emplace_back(path);
  return paths;
}

// Calls `use` with "a" and "a/b" for "a/b/c" and for "a/b/c/".
template <typename Use>
void each_parent(const std::string& path, const Use& use) {
  for (size_t slash = path.find('/'); slash != std::string::npos && slash + 1 < path.size();
       slash = path.find('/', slash + 1))
    use(path.substr(0, slash));
}

struct stat status_of(const std::string& path) {
  struct stat status {};
  base::check(::lstat(path.c_str(), &status), "read " + path);
  return status;
}

FileState state_of(const struct stat& status) {
  return {status.st_mode & 0777, base::file_time_ns(status.st_mtim)};
}

bool ends_all(Code code) {
  return code == Code::unavailable || code == Code::unknown_outcome ||
         code == Code::resource_exhausted;
}

class IgnoredCopy {
 public:
  IgnoredCopy(RemoteFiles& files, const IgnoredFiles& ignored)
      : files_(files),
        top_(ignored.top + "/"),
        present_(ignored.directories.begin(), ignored.directories.end()) {}

  void copy(std::string path, CopiedIgnored& copied) {
    each_parent(path, [this](const std::string& parent) { make_parent(parent); });
    if (path.ends_with('/')) path.pop_back();
    const struct stat status = status_of(top_ + path);
    if (!S_ISLNK(status.st_mode)) {
      CopyTally tally = copy_in(files_, top_ + path, path);
      copied.skipped += tally.skipped;
      std::move(tally.special_modes.begin(), tally.special_modes.end(),
                std::back_inserter(copied.special_modes));
      return;
    }
    std::string target(PATH_MAX, '\0');  // copy_in would follow it
    const ssize_t size = base::check(
        ::readlink((top_ + path).c_str(), target.data(), target.size()), "read " + path);
    target.resize(static_cast<size_t>(size));
    files_.make_symlink(path, target, base::file_time_ns(status.st_mtim));
  }

  // The deepest first: to fill a directory changes its time, and a closed one cannot be entered.
  void finish() {
    for (auto at = made_.rbegin(); at != made_.rend(); ++at)
      files_.make_directory(*at, state_of(status_of(top_ + *at)));
  }

 private:
  void make_parent(const std::string& path) {
    if (!present_.insert(path).second) return;
    files_.make_directory(path);
    made_.insert(path);
  }

  RemoteFiles& files_;
  const std::string top_;
  std::set<std::string> present_;
  std::set<std::string> made_;
};

}  // namespace

IgnoredFiles find_ignored(const std::string& top, const GitCall& in_tree) {
  IgnoredFiles ignored{top, {}, {}, {}};
  const std::vector<std::string> kinds{"--others", "--ignored", "--directory"};
  const auto by = [&](const std::string& rules) {
    std::vector<std::string> options = kinds;
    options.push_back(rules);
    return paths_of(options, in_tree);
  };
  ignored.paths = by("--exclude-per-directory=.gitignore");
  const std::set<std::string> known(ignored.paths.begin(), ignored.paths.end());
  std::vector<std::string> personal;
  for (std::string& path : by("--exclude-standard"))
    if (!known.contains(path)) personal.push_back(std::move(path));
  if (!personal.empty()) {
    ignored.notes.push_back("ignored by your own patterns alone, left out: " + some_of(personal) +
                            "; moorage cp brings them");
  }
  std::set<std::string> directories;
  for (const std::string& path : paths_of({}, in_tree))
    each_parent(path, [&](std::string parent) { directories.insert(std::move(parent)); });
  ignored.directories.assign(directories.begin(), directories.end());
  return ignored;
}

CopiedIgnored copy_ignored(RemoteFiles& files, const IgnoredFiles& ignored,
                           const std::function<void(size_t number)>& before) {
  CopiedIgnored copied;
  IgnoredCopy copy(files, ignored);
  const auto fail = [&copied](std::vector<std::string> paths, const Error& error) {
    if (copied.missing.empty()) copied.reason = error.message();
    copied.missing.insert(copied.missing.end(), paths.begin(), paths.end());
  };
  for (size_t n = 0; n < ignored.paths.size(); ++n) {
    before(n);
    try {
      copy.copy(ignored.paths[n], copied);
    } catch (const Error& error) {
      if (!ends_all(error.code())) {
        fail({ignored.paths[n]}, error);
        continue;
      }
      fail({ignored.paths.begin() + static_cast<ptrdiff_t>(n), ignored.paths.end()}, error);
      return copied;
    }
  }
  copy.finish();
  return copied;
}

}  // namespace moorage::cli
