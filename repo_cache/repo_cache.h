// Mirrors: one bare repository per upstream, in <root>/<repo>/git, written only here. Upstream's
// branches are refs/upstream/heads/*, its tags refs/upstream/tags/*, its HEAD the symbolic
// refs/upstream/HEAD; tips that upstream dropped are refs/keep/<oid>. A client's import is
// refs/moorage/*, refs/keep/<oid> and, named as in the checkout, refs/local/*. Objects are never
// collected, so an object once visible to a workspace stays. Transport is the system git without
// hooks, foreign configuration and prompts; the rest is libgit2. All verbs block, may be called
// from any thread, and identify repositories by directory name ("repo_3"). This layer does not know
// the database: the caller decides what exists, who may see it and what may be removed.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "repo_cache/git_access.h"
#include "repo_cache/results.h"
#include "repo_cache/url.h"

namespace moorage::repo_cache {

struct Progress {
  std::string_view phase;  // "fetch" or "checkout"
  int percent = -1;        // of the current step; -1: unknown
  std::string text;        // one printable line
};
using ProgressFunction =
    std::function<void(const Progress&)>;  // may be empty; called from any thread

struct RepoCacheOptions {
  std::string root;         // directory that holds <repo>/
  std::string git = "git";  // absolute, or searched in the system's bin directories
  UrlPolicy url_policy;
  std::string ssh_command = "ssh -oBatchMode=yes -oConnectTimeout=20 -oPermitLocalCommand=no";
  std::map<std::string, std::string> environment;  // for git: proxies, certificates
  uint64_t max_fetch_bytes = 32ull << 30;          // of one pack
  uint64_t max_git_memory_bytes = 4ull << 30;      // of each process of git, without mapped packs
  uint64_t max_git_address_bytes = 12ull << 30;    // with them
  uint64_t max_objects = 50'000'000;               // that one fetch brings
  uint32_t max_refs = 500'000;
  uint32_t disk_first_id = 1'900'000'000;  // D; files in base trees belong to D + 1000
  unsigned checkout_threads = 0;           // 0: one per core, at most 8
  // Matching .gitattributes patterns for one base tree (formats/attributes.h): about a minute.
  uint64_t max_attribute_steps = 10'000'000'000;
};

class RepoCache {
 public:
  explicit RepoCache(RepoCacheOptions options);
  ~RepoCache();
  RepoCache(RepoCache&&) = delete;

  // Updates the mirror from upstream: clones, or lists upstream's refs and fetches if one differs.
  // Single flight: callers share a check only if it began after they came. unavailable (no mirror
  // and no upstream), permission_denied, not_found (also: an empty repository), unsupported
  // (SHA-256), resource_exhausted, deadline_exceeded. A broken mirror is rebuilt first. All callers
  // of a repository must have the same rights upstream: one's access serves those who share.
  RefreshResult refresh(const std::string& repo, const RepoUrl& url, Duration deadline,
                        const ProgressFunction& progress = {}, const GitAccess& access = {});
  // When upstream last answered refresh(); 0: not yet.
  int64_t checked_wall_ms(const std::string& repo) const;

  // Fetches something else that a person may name, and resolve() does not find: a full commit id,
  // or "pull/7/head", "refs/changes/34/1234/5". not_found; invalid_argument: no such form.
  void fetch_more(const std::string& repo, const RepoUrl& url, const std::string& text,
                  Duration deadline, const ProgressFunction& progress = {},
                  const GitAccess& access = {});
  static bool can_fetch_more(const std::string& text);  // the form

  // Imports refs/moorage/{head,work,raw} (without the last: the same as work) and the branches,
  // tags and remote branches of a git bundle, checked in quarantine. Creates the mirror if missing.
  // bundle_fd is borrowed; a regular file.
  ImportResult import_bundle(const std::string& repo, int bundle_fd, const ImportLimits& limits);

  // Writes a pack of everything that the mirror's refs and this commit reach to a regular file.
  void export_pack(const std::string& repo, const std::string& commit, int pack_fd,
                   Duration deadline) const;
  // Imports an untrusted pack after git's full checks; pack and mirror must contain all that the
  // tips reach. Creates the mirror if missing. invalid_argument: broken or incomplete.
  void import_pack(const std::string& repo, int pack_fd, const std::vector<std::string>& tips,
                   const ImportLimits& limits);
  bool has_objects(const std::string& repo, const std::vector<std::string>& oids) const;

  bool exists(const std::string& repo) const;
  // Creates a mirror without objects if missing: for a restore from a copy of the store.
  void make_empty(const std::string& repo) const;
  std::vector<std::string> tips(const std::string& repo) const;  // of all refs, no duplicates
  // Tips of the branches of an imported checkout: at most so many.
  std::vector<std::string> local_branches(const std::string& repo, size_t most) const;
  // "<oid> <name>", a line per ref, sorted by name, including kept tips and imports.
  std::string all_refs(const std::string& repo) const;
  // Branch, tag (peeled), full ref, or commit id of at least 7 digits; "" = upstream's HEAD (else
  // the last import).
  ResolvedRef resolve(const std::string& repo, std::string_view text) const;
  // Whether it is the only parent.
  bool is_child(const std::string& repo, const std::string& commit,
                const std::string& parent) const;
  // Whether the ref ("refs/heads/main") contains a commit that `since` does not contain, among the
  // newest 50,000 such. False: also if the mirror lacks it, or the ref no longer exists.
  bool is_later(const std::string& repo, const std::string& commit, const std::string& since,
                const std::string& ref) const;
  // Of a commit from a ref ("refs/heads/main"); stops counting at the limit. nullopt: the ref no
  // longer exists.
  std::optional<Distance> distance(const std::string& repo, const std::string& commit,
                                   const std::string& ref, int limit = 10'000) const;
  // Cached until the mirror changes.
  std::shared_ptr<const WorkspaceRefs> workspace_refs(const std::string& repo) const;

  // Full check of every object that a ref reaches; throws corrupted. The next refresh rebuilds.
  void check(const std::string& repo, Duration deadline) const;
  void mark_suspect(const std::string& repo) const;  // after an access to a broken object

  // Removes mirror and base trees; missing is fine. Calls `unwanted` when no one else uses them.
  void remove(const std::string& repo, const std::function<bool()>& unwanted);

  std::string directory(const std::string& repo) const;  // <root>/<repo>; refuses bad names
  std::string mirror_directory(const std::string& repo) const { return directory(repo) + "/git"; }
  // Mounted in sandboxes.
  std::string objects_directory(const std::string& repo) const {
    return mirror_directory(repo) + "/objects";
  }
  const RepoCacheOptions& options() const { return options_; }

 private:
  struct State;
  RepoCacheOptions options_;
  std::unique_ptr<State> state_;
};

}  // namespace moorage::repo_cache
