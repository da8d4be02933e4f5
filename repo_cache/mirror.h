// One mirror directory and what git does to it: clone, compare, fetch, check, rebuild. Callers hold
// the repository's lock (MirrorLock), so at most one process writes it. Layout of <root>/<repo>/:
//   git/        the mirror; appears by rename, whole and synced
//   git.new/    a clone in the making; whatever is found here at the next try is removed
//   git.broken/ the last mirror that failed its check, kept until the next one does
//   lock        flock(2): held by the daemon and, through the inherited descriptor, by its git; so
//   a git
//               that outlived a killed daemon is waited for
//   fetching    there while a fetch runs: found at the next try, it asks for a full check
//   suspect     somebody met a broken object: as `fetching`
//   checked     wall time in ms of the last successful comparison with upstream
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/fd.h"
#include "repo_cache/git_command.h"
#include "repo_cache/repo_cache.h"

namespace moorage::repo_cache {

// Names as upstream has them ("refs/heads/main", "refs/tags/v1") and the object each points at.
struct UpstreamRefs {
  std::map<std::string, std::string> oids;
  std::string head_ref;  // "refs/heads/main"; empty: none, or detached
  friend bool operator==(const UpstreamRefs&, const UpstreamRefs&) = default;
};

// "refs/heads/main" -> "refs/upstream/heads/main".
std::string to_mirror_ref(const std::string& upstream_ref);

class MirrorLock {
 public:
  MirrorLock(const std::string& repo_directory, const Deadline& deadline);  // waits
  int fd() const { return fd_.get(); }

 private:
  base::Fd fd_;
};

class Mirror {
 public:
  Mirror(const RepoCacheOptions& options, std::string repo_directory);

  bool exists() const;
  UpstreamRefs ask_upstream(const RepoUrl& url, const Deadline& deadline) const;  // ls-remote
  UpstreamRefs upstream_refs() const;            // as of the last fetch
  std::vector<std::string> tip_commits() const;  // of every ref

  void initialize(const MirrorLock& lock,
                  const Deadline& deadline) const;  // empty mirror, for imports
  void clone(const RepoUrl& url, const UpstreamRefs& upstream, const MirrorLock& lock,
             const Deadline& deadline, const ProgressFunction& progress) const;
  void fetch(const RepoUrl& url, const UpstreamRefs& upstream, const MirrorLock& lock,
             const Deadline& deadline, const ProgressFunction& progress) const;
  // A new clone in the place of a mirror that failed its check; kept refs are carried over where
  // they can be.
  void rebuild(const RepoUrl& url, const UpstreamRefs& upstream, const MirrorLock& lock,
               const Deadline& deadline, const ProgressFunction& progress) const;

  // Cheap: every ref's object is there, every pack is as long as its index says. Throws corrupted.
  void quick_check() const;
  void full_check(const Deadline& deadline) const;  // every object; throws corrupted
  void connectivity_check(
      const Deadline& deadline) const;  // every object is there; throws corrupted
  // Removes what a killed git left behind and makes the checks that the marks ask for. Throws
  // corrupted.
  void recover(const Deadline& deadline) const;
  bool suspect() const;
  void mark_suspect() const;

  void record_checked() const;
  int64_t checked_wall_ms() const;
  const std::string& git_directory() const { return git_directory_; }

  void initialize_at(const std::string& git_directory, const Deadline& deadline) const;
  const GitCommand& git() const { return git_; }

 private:
  void remove_leftovers() const;
  void fsck(const std::vector<std::string>& options, const Deadline& deadline) const;
  void fetch_into(const std::string& git_directory, const RepoUrl& url, const MirrorLock& lock,
                  const Deadline& deadline, const ProgressFunction& progress) const;
  void make_new_clone(const RepoUrl& url, const UpstreamRefs& upstream, const MirrorLock& lock,
                      const Deadline& deadline, const ProgressFunction& progress) const;
  void set_head(const std::string& git_directory, const std::string& head_ref,
                const Deadline& deadline) const;
  void update_refs(const std::string& commands, const Deadline& deadline) const;
  void carry_over_kept_refs(const MirrorLock& lock, const Deadline& deadline) const;
  void pack_refs(const std::string& git_directory, const Deadline& deadline) const;

  const RepoCacheOptions& options_;
  GitCommand git_;
  std::string directory_;  // <root>/<repo>
  std::string git_directory_;
  std::string new_directory_;
  std::string broken_directory_;
};

}  // namespace moorage::repo_cache
