// One mirror directory and the git operations on it: clone, compare, fetch, check, rebuild. Callers
// hold the repository's lock (MirrorLock), so at most one process writes it. Layout of
// <root>/<repo>/:
//   git/        the mirror; appears by rename, complete and synced
//   git.new/    a clone in progress; the next try removes it
//   git.broken/ the last mirror that failed its check, kept until the next failure
//   lock        flock(2): held by the daemon and, through the inherited descriptor, by its git, so
//               that the next daemon waits for a git that outlived its daemon
//   fetching    exists during a fetch: if found at the next try, it requires a full check
//   suspect     a broken object was found: same effect as `fetching`
//   checked     wall time in ms of the last successful comparison with upstream
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/files.h"
#include "repo_cache/git_command.h"
#include "repo_cache/repo_cache.h"

namespace moorage::repo_cache {

// Upstream's names ("refs/heads/main", "refs/tags/v1", and others that somebody asked for, such as
// "refs/pull/7/head") and their objects.
struct UpstreamRefs {
  std::map<std::string, std::string> oids;
  std::string head_ref;  // "refs/heads/main"; empty: none, or detached
  friend bool operator==(const UpstreamRefs&, const UpstreamRefs&) = default;
};

// "refs/heads/main" -> "refs/upstream/heads/main".
std::string to_mirror_ref(const std::string& upstream_ref);
// A line for update_refs: this object stays, whatever happens to its other references.
std::string keep_command(const std::string& oid);

class MirrorLock {
 public:
  MirrorLock(const std::string& repo_directory, const Deadline& deadline);  // waits
  int fd() const { return fd_.get(); }

 private:
  Fd fd_;
};

// What every call to upstream needs.
struct FetchTask {
  const RepoUrl& url;
  const GitAccess& access;
  const MirrorLock& lock;
  const Deadline& deadline;
  const ProgressFunction& progress;
};

class Mirror {
 public:
  Mirror(const RepoCacheOptions& options, std::string repo_directory);

  bool exists() const { return base::path_exists(git_directory_); }
  UpstreamRefs ask_upstream(const FetchTask& task) const;  // ls-remote
  UpstreamRefs upstream_refs() const;                      // as of the last fetch
  std::vector<std::string> tip_commits() const;            // of every ref

  void initialize(const MirrorLock& lock,
                  const Deadline& deadline) const;  // empty mirror, for imports
  void clone(const FetchTask& task, const UpstreamRefs& upstream) const;
  void fetch(const FetchTask& task, const UpstreamRefs& upstream) const;
  // Fetches a commit by its id, or another ref of upstream; later fetches update the ref.
  // not_found: upstream has no such thing, or does not give it out.
  void fetch_more(const FetchTask& task, const std::string& wanted) const;
  // Replaces a mirror that failed its check by a new clone; carries over readable kept refs.
  void rebuild(const FetchTask& task, const UpstreamRefs& upstream) const;

  // Cheap: every ref's object exists, every pack has the length in its index. Throws corrupted.
  void quick_check() const;
  // Every object; throws corrupted.
  void full_check(const Deadline& deadline) const { fsck({}, deadline); }
  // Removes leftovers of a killed git and runs the checks that the marks require. Throws corrupted.
  void recover(const Deadline& deadline) const;
  void mark_suspect() const { base::write_file_durable(directory_ + "/suspect", ""); }

  void record_checked() const;
  int64_t checked_wall_ms() const;
  const std::string& git_directory() const { return git_directory_; }

  void initialize_at(const std::string& git_directory, const Deadline& deadline) const;
  // Lines for git update-ref --stdin; none: nothing.
  void update_refs(const std::string& commands, const Deadline& deadline) const;
  const GitCommand& git() const { return git_; }

 private:
  void remove_leftovers() const;
  void fsck(const std::vector<std::string>& options, const Deadline& deadline) const;
  std::set<std::string> other_refs() const;  // neither branches nor tags
  void fetch_into(const std::string& git_directory, const FetchTask& task,
                  const UpstreamRefs& upstream) const;
  void make_new_clone(const FetchTask& task, const UpstreamRefs& upstream) const;
  void set_head(const std::string& git_directory, const std::string& head_ref,
                const Deadline& deadline) const;
  void carry_over_kept_refs(const FetchTask& task) const;
  void pack_refs(const std::string& git_directory, const Deadline& deadline) const;

  const RepoCacheOptions& options_;
  GitCommand git_;
  std::string directory_;  // <root>/<repo>
  std::string git_directory_;
  std::string new_directory_;
  std::string broken_directory_;
};

// A directory for data from an untrusted sender until it is checked; removed by the destructor. The
// caller holds the mirror's lock, so only one exists; it first removes leftovers of a crash.
class Quarantine {
 public:
  explicit Quarantine(std::string path) : path_(std::move(path)) { base::remove_tree(path_); }
  ~Quarantine() {
    try {
      base::remove_tree(path_);
    } catch (const Error&) {
      // The next import removes it.
    }
  }
  Quarantine(Quarantine&&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace moorage::repo_cache
