// Repositories (one bare mirror each) and their base trees. A repository is found by its normalized
// URL and its credential scope, never by its name. Rows are never removed: `evicted` means that the
// mirror was removed, and the same URL reuses the row.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "state_db/lifecycle.h"

namespace moorage::state_db {

class Store;

struct RepositoryRow {
  base::RepoId id{};
  std::string url{};        // normalized by repo_cache; no credentials
  std::string fetch_url{};  // the URL for git, in upstream's spelling
  std::string scope{};      // who may share it; "" is public
  std::string name{};       // "acme/shop": for people
  RepositoryState state = RepositoryState::cloning;
  std::string reason{};  // of the last move: why it is broken, who evicted it
  std::string default_branch{};
  int64_t fetched_wall_ms = 0;  // objects last came in; 0: never
  int64_t checked_wall_ms = 0;  // upstream last answered; 0: never
  std::string stale_reason{};   // why the last check failed; empty if it did not
  uint64_t bytes = 0;           // of the mirror
  int64_t created_wall_ms = 0;
};

struct NewRepository {
  std::string url{};
  std::string scope{};
  std::string name{};
  std::string fetch_url = url;
};

// Results of a fetch or check; only fields that are set are written.
struct RepositoryFacts {
  std::optional<std::string> fetch_url{};
  std::optional<std::string> default_branch{};
  std::optional<int64_t> fetched_wall_ms{};
  std::optional<int64_t> checked_wall_ms{};
  std::optional<std::string> stale_reason{};
  std::optional<uint64_t> bytes{};
};

class RepositoryTable {
 public:
  explicit RepositoryTable(Store& store) : store_(store) {}

  base::RepoId create(const NewRepository& repository);  // in `cloning`; already_exists
  // The row of this URL and scope; created (in `cloning`) if missing. second: created now.
  std::pair<base::RepoId, bool> find_or_create(const NewRepository& repository);
  RepositoryRow get(base::RepoId id);  // not_found
  std::optional<RepositoryRow> find(base::RepoId id);
  std::optional<RepositoryRow> find(const std::string& url, const std::string& scope);
  std::vector<RepositoryRow> list();  // by id, all states
  void set_facts(base::RepoId id, const RepositoryFacts& facts);

 private:
  Store& store_;
};

// An immutable checkout of one commit, on disk at repos/<repo>/trees/<commit>/. Its row is written
// after the tree is in place. A tree from another boot that was not synced may be torn: rebuild.
struct BaseTreeRow {
  base::RepoId repository{};
  std::string commit{};  // 40 hex digits
  uint64_t files = 0;
  uint64_t bytes = 0;
  uint64_t submodules = 0;  // gitlinks, left empty
  uint64_t lfs_files = 0;   // pointers, left unresolved
  bool synced = false;
  std::string boot_id{};  // of the boot in which it was written
  int64_t created_wall_ms = 0;
  int64_t last_used_wall_ms = 0;
  // Commit whose tree must stay as long as this one: this tree is a delta over it, or was, and
  // mounts may still use it. Empty: none.
  std::string parent{};
  uint64_t disk_files = 0;  // its own files only
  uint64_t disk_bytes = 0;
};

class BaseTreeTable {
 public:
  explicit BaseTreeTable(Store& store) : store_(store) {}

  // Replaces a row of the same repository and commit. Conflict: its parent has no row.
  void put(const BaseTreeRow& tree);
  std::optional<BaseTreeRow> find(base::RepoId repository, const std::string& commit);
  std::vector<BaseTreeRow> list(base::RepoId repository);
  void set_synced(base::RepoId repository, const std::string& commit);
  void touch(base::RepoId repository, const std::string& commit);  // last_used = now
  void set_parent(base::RepoId repository, const std::string& commit, const std::string& parent);
  // conflict while a layer starts from it, or another tree is a delta over it.
  void remove(base::RepoId repository, const std::string& commit);
  void remove_all(base::RepoId repository);  // conflict while a layer starts from one

 private:
  Store& store_;
};

}  // namespace moorage::state_db
