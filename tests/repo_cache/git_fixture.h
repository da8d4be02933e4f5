// Real repositories and a real git server for the tests of the repository cache.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "repo_cache/repo_cache.h"

namespace moorage::repo_cache::test {

constexpr Duration kLong = std::chrono::minutes(2);

class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Runs git in a directory with a fixed identity and no configuration; fails the test if git fails.
std::string git(const std::string& directory, const std::vector<std::string>& arguments,
                const std::string& input = {},
                const std::map<std::string, std::string>& environment = {});
// The same, but returns the exit status.
int git_status_of(const std::string& directory, const std::vector<std::string>& arguments,
                  const std::string& input = {});

void put_file(const std::string& path, std::string_view bytes,
              mode_t mode = 0644);  // makes directories
std::string get_file(const std::string& path);

// A worktree for commits.
class Upstream {
 public:
  explicit Upstream(const std::string& path);
  const std::string& path() const { return path_; }
  std::string commit(const std::map<std::string, std::string>& files,
                     const std::string& message = "change");
  std::string commit_all(const std::string& message = "change");
  std::string run(const std::vector<std::string>& arguments, const std::string& input = {}) const;
  std::string head() const;

 private:
  std::string path_;
};

// `git daemon` on a free loopback port, serving every repository below a directory; each transfer
// writes a trace to a file. Stopped by the destructor.
class GitDaemon {
 public:
  explicit GitDaemon(const std::string& base_path);
  ~GitDaemon();
  GitDaemon(const GitDaemon&) = delete;
  GitDaemon& operator=(const GitDaemon&) = delete;
  std::string url(const std::string& name) const;
  // Number of packs made by upload-pack; listing references makes none.
  int packs_sent() const;
  int connections() const;
  void stop();

 private:
  std::string trace_path_;
  pid_t pid_ = -1;
  int port_ = 0;
};

// Every path below a directory except .git: type, mode bits, content or target. For comparing
// trees.
std::map<std::string, std::string> snapshot(const std::string& directory);

RepoCacheOptions options_for(const TemporaryDirectory& store, const std::string& file_root);

// An upstream and a cache that may read it as a path of this host.
struct CachedUpstream {
  TemporaryDirectory directory;
  Upstream upstream{directory / "served/shop"};
  RepoCache cache{options_for(directory, directory / "served")};

  RepoUrl url() const { return parse_url(upstream.path(), cache.options().url_policy); }
  RefreshResult refresh() { return cache.refresh("repo_1", url(), kLong); }
};

// The error thrown by `work`; fails the test if it throws nothing.
base::Error failure_of(const std::function<void()>& work);

}  // namespace moorage::repo_cache::test
