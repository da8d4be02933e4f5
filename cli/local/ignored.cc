#include "cli/local/ignored.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <limits>
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

// Sorted, without those inside of a directory that is one of them: git lists "a/" and "a/b", too.
std::vector<std::string> without_inner(std::vector<std::string> paths) {
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> outer;
  for (std::string& path : paths) {
    const bool inner =
        !outer.empty() && outer.back().ends_with('/') && path.starts_with(outer.back());
    if (!inner) outer.push_back(std::move(path));
  }
  return outer;
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

// When the oldest of the ignored files was written that is newer than files of the base are inside:
// packages of npm are from 1985.
int64_t oldest_of(const IgnoredFiles& ignored) {
  constexpr int64_t kBaseTime_ns = 1'000'000'000'000'000'000;
  namespace fs = std::filesystem;
  int64_t oldest = std::numeric_limits<int64_t>::max();
  const auto look = [&oldest](const fs::path& path) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return;
    const int64_t time_ns = base::file_time_ns(status.st_mtim);
    if (time_ns > kBaseTime_ns) oldest = std::min(oldest, time_ns);
  };
  for (const std::string& path : ignored.paths) {
    const fs::path at = ignored.top + "/" + path;
    look(at);
    if (!path.ends_with('/')) continue;
    std::error_code failed;  // the copy names unreadable ones
    const auto skip = fs::directory_options::skip_permission_denied;
    for (fs::recursive_directory_iterator each(at, skip, failed), end; !failed && each != end;
         each.increment(failed))
      look(each->path());
  }
  return oldest;
}

bool ends_all(Code code) { return code == Code::unavailable || code == Code::unknown_outcome; }

class IgnoredCopy {
 public:
  IgnoredCopy(RemoteFiles& files, const IgnoredFiles& ignored)
      : files_(files),
        top_(ignored.top + "/"),
        present_(ignored.directories.begin(), ignored.directories.end()) {}

  void copy(std::string path, CopiedIgnored& copied) {
    each_parent(path, [this](const std::string& parent) { make_parent(parent); });
    if (path.ends_with('/')) path.pop_back();
    CopyTally tally = copy_in(files_, top_ + path, path, Links::not_followed);
    copied.skipped += tally.skipped;
    std::move(tally.special_modes.begin(), tally.special_modes.end(),
              std::back_inserter(copied.special_modes));
  }

  // The deepest first: to fill a directory changes its time, and a closed one cannot be entered.
  std::vector<std::string> made() const { return {made_.rbegin(), made_.rend()}; }
  void finish(const std::string& directory) {
    files_.make_directory(directory, state_of(status_of(top_ + directory)));
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
  IgnoredFiles ignored{top, {}, {}, {}, {}};
  const std::vector<std::string> kinds{"--others", "--ignored", "--directory"};
  const auto by = [&](const std::string& rules) {
    std::vector<std::string> options = kinds;
    options.push_back(rules);
    return paths_of(options, in_tree);
  };
  ignored.paths = without_inner(by("--exclude-per-directory=.gitignore"));
  std::vector<std::string> personal;
  for (std::string& path : without_inner(by("--exclude-standard"))) {
    const auto known = std::lower_bound(ignored.paths.begin(), ignored.paths.end(), path);
    // Of a directory, .gitignore may name a part alone.
    if (known == ignored.paths.end() || !known->starts_with(path))
      personal.push_back(std::move(path));
  }
  if (!personal.empty()) {
    ignored.notes.push_back("ignored by your own patterns alone, left out: " + some_of(personal) +
                            "; moorage cp brings them");
  }
  std::set<std::string> directories;
  const int64_t oldest = oldest_of(ignored);
  for (const std::string& path : paths_of({}, in_tree)) {
    each_parent(path, [&](std::string parent) { directories.insert(std::move(parent)); });
    struct stat status {};
    const bool is_file =
        ::lstat((top + "/" + path).c_str(), &status) == 0 && S_ISREG(status.st_mode);
    if (is_file && base::file_time_ns(status.st_mtim) >= oldest) ignored.newer.push_back(path);
  }
  ignored.directories.assign(directories.begin(), directories.end());
  return ignored;
}

CopiedIgnored copy_ignored(RemoteFiles& files, const IgnoredFiles& ignored,
                           const CopyProgress& before) {
  CopiedIgnored copied;
  IgnoredCopy copy(files, ignored);
  const auto fail = [&copied](std::vector<std::string> paths, const Error& error) {
    if (copied.missing.empty()) copied.reason = error.message();
    copied.missing.insert(copied.missing.end(), paths.begin(), paths.end());
  };
  std::vector<std::string> paths = ignored.paths;
  paths.insert(paths.end(), ignored.newer.begin(), ignored.newer.end());
  for (size_t n = 0; n < paths.size(); ++n) {
    before(n * 100 / paths.size(), paths[n]);
    try {
      copy.copy(paths[n], copied);
    } catch (const Error& error) {
      if (!ends_all(error.code())) {
        fail({paths[n]}, error);
        continue;
      }
      fail({paths.begin() + static_cast<ptrdiff_t>(n), paths.end()}, error);
      return copied;
    }
  }
  for (const std::string& directory : copy.made()) {
    try {
      copy.finish(directory);
    } catch (const Error& error) {
      fail({directory}, error);
    }
  }
  return copied;
}

}  // namespace moorage::cli
