// Mirrors: one bare repository for each upstream, in <root>/<repo>/git, written only here.
// Upstream's branches are refs/upstream/heads/*, its tags refs/upstream/tags/*, its HEAD the
// symbolic refs/upstream/HEAD; tips that upstream gave up are refs/keep/<oid>, what clients
// imported is refs/moorage/* and refs/keep/<oid>. Nothing is ever collected here, so an object once
// shown to a workspace stays. Transport is the system git with hooks, foreign configuration and
// prompts off; the rest is libgit2. All verbs block, may be called from any thread, and know
// repositories by directory name ("repo_3"). Does not know the database: what exists, who may see
// it and what may be removed is the caller's business.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "repo_cache/url.h"

namespace moorage::repo_cache {

using Duration = std::chrono::milliseconds;

struct Progress {
  std::string_view phase;  // "fetch" or "checkout"
  int percent = -1;        // of the present step; -1: not known
  std::string text;        // one printable line
};
using ProgressFunction =
    std::function<void(const Progress&)>;  // may be empty; called from any thread

struct RepoCacheOptions {
  std::string root;         // directory that holds <repo>/
  std::string git = "git";  // absolute, or looked up in the system's bin directories
  UrlPolicy url_policy;
  std::string ssh_command = "ssh -oBatchMode=yes -oConnectTimeout=20 -oPermitLocalCommand=no";
  std::map<std::string, std::string> environment;  // added for git: proxies, certificates
  uint64_t max_fetch_bytes = 32ull << 30;          // of one pack
  uint64_t max_git_memory_bytes = 8ull << 30;      // address space of git (it maps packs)
  uint32_t max_refs = 500'000;
  uint32_t disk_first_id = 1'900'000'000;  // D; files in base trees belong to D + 1000
  unsigned checkout_threads = 0;           // 0: one a core, at most 8
  // Of trying the patterns of .gitattributes for one base tree (attributes.h): about a minute.
  uint64_t max_attribute_steps = 10'000'000'000;
};

struct RefreshResult {
  bool cloned = false;   // there was no mirror before
  bool fetched = false;  // objects or refs moved; false: upstream is as we have it
  bool rebuilt = false;  // the mirror was broken and has been made anew
  bool stale = false;  // upstream could not be reached: the mirror is as it was at checked_wall_ms
  std::string stale_reason;
  int64_t checked_wall_ms = 0;  // when upstream was last compared successfully
  std::string default_branch;   // "main"; empty: upstream has none
  std::string tip;              // commit of the default branch
  uint64_t bytes = 0;           // of the mirror on disk
};

struct ResolvedRef {
  std::string commit;  // 40 hex digits
  std::string ref;     // as upstream has it: "refs/heads/main"; empty: named by commit
  bool is_branch = false;
};

struct ImportResult {
  std::string head_commit;
  std::string work_commit;  // its only parent is head_commit
};

struct ImportLimits {
  uint64_t max_bytes = 8ull << 30;  // of the pack when indexed
  Duration deadline{600'000};
};

// What a workspace's .git says about upstream, ready to be written there.
struct WorkspaceRefs {
  std::string packed_refs;     // refs/remotes/origin/* and refs/tags/*, peeled, sorted
  std::string default_branch;  // for refs/remotes/origin/HEAD; may be empty
};

class RepoCache {
 public:
  explicit RepoCache(RepoCacheOptions options);
  ~RepoCache();
  RepoCache(const RepoCache&) = delete;
  RepoCache& operator=(const RepoCache&) = delete;

  // Makes the mirror equal to upstream: clones, or asks upstream for its refs and fetches only if
  // one differs. Single flight: a caller shares a check only if that check began after the caller
  // came. unavailable (no mirror and no upstream), permission_denied, not_found (also: an empty
  // repository), unsupported (SHA-256), resource_exhausted, deadline_exceeded. A broken mirror is
  // rebuilt first.
  RefreshResult refresh(const std::string& repo, const RepoUrl& url, Duration deadline,
                        const ProgressFunction& progress = {});

  // Takes refs/moorage/head and refs/moorage/work out of a git bundle (checked in quarantine
  // first). Makes the mirror if there is none. bundle_fd is borrowed; a regular file.
  ImportResult import_bundle(const std::string& repo, int bundle_fd, const ImportLimits& limits);

  // Writes a pack of all that the mirror's refs and this commit reach to a regular file.
  void export_pack(const std::string& repo, const std::string& commit, int pack_fd,
                   Duration deadline) const;
  // Takes a stranger's pack in, after git's full checks; what the tips reach must be in it or here.
  // Makes the mirror if there is none. invalid_argument: it is broken, or not complete.
  void import_pack(const std::string& repo, int pack_fd, const std::vector<std::string>& tips,
                   const ImportLimits& limits);
  bool has_objects(const std::string& repo, const std::vector<std::string>& oids) const;

  bool exists(const std::string& repo) const;
  // A mirror without objects, where there is none: for who brings them from a copy of the store.
  void make_empty(const std::string& repo) const;
  std::vector<std::string> tips(const std::string& repo) const;  // of all refs, no duplicates
  // "<oid> <name>", a line a ref, sorted by name: kept tips and imports, too.
  std::string all_refs(const std::string& repo) const;
  // Branch, tag (peeled), full ref, or commit id of at least 7 digits; "" = upstream's HEAD (else
  // the last import).
  ResolvedRef resolve(const std::string& repo, std::string_view text) const;
  // Commits that the tip of ref ("refs/heads/main") has and commit lacks; counting stops at limit.
  // nullopt-like answer -1: the ref is gone.
  int behind(const std::string& repo, const std::string& commit, const std::string& ref,
             int limit = 10'000) const;
  // Cached until the mirror changes.
  std::shared_ptr<const WorkspaceRefs> workspace_refs(const std::string& repo) const;

  // Full check of every object that a ref reaches; throws corrupted. The next refresh rebuilds.
  void check(const std::string& repo, Duration deadline) const;
  void mark_suspect(const std::string& repo) const;  // somebody met a broken object

  // Mirror, base trees, all; missing is fine. `unwanted` is asked when nobody else is at it.
  void remove(const std::string& repo, const std::function<bool()>& unwanted);

  std::string directory(const std::string& repo) const;         // <root>/<repo>; refuses odd names
  std::string mirror_directory(const std::string& repo) const;  // .../git
  std::string objects_directory(
      const std::string& repo) const;  // .../git/objects: mounted in sandboxes
  const RepoCacheOptions& options() const { return options_; }

 private:
  struct State;
  RepoCacheOptions options_;
  std::unique_ptr<State> state_;
};

}  // namespace moorage::repo_cache
