// What collection may take, decided from rows alone: nothing is walked, asked or changed, so that
// it can be told before it is done. The ladder, least harm first: caches that a workspace declares,
// base trees that no layer stands on, workspaces at rest for long (archived, not removed), mirrors
// that no workspace needs. What is pinned, leased, running or being transferred is kept, always.
// Ages are the store's (store_age.h): no jump of a clock makes anything old.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "state_db/repositories.h"
#include "state_db/workspaces.h"

namespace moorage::workspace {

enum class GcRung { cache, base_tree, workspace, mirror };
inline constexpr std::array<std::string_view, 4> kGcRungNames{"cache", "base_tree", "workspace",
                                                              "mirror"};

struct GcRow {
  GcRung rung = GcRung::cache;
  base::RepoId repository;
  std::string commit;           // of a base tree
  base::WorkspaceId workspace;  // of a cache, or the workspace itself
  std::string path;             // of a cache, as declared
  std::string subject;          // for people
  bool goes = false;
  std::string why;                // why that is safe, or why it is kept
  std::optional<uint64_t> bytes;  // what it gives back; unset: not measured
  std::optional<uint64_t> files;
};

using TreeKey = std::pair<base::RepoId, std::string>;

struct GcFacts {
  std::vector<state_db::WorkspaceRow> workspaces;  // all that are not purged
  std::vector<state_db::RepositoryRow> repositories;
  std::vector<state_db::BaseTreeRow> trees;
  std::set<TreeKey> stood_on;           // base trees that layers start from
  std::set<base::WorkspaceId> running;  // it has a sandbox
  std::set<base::WorkspaceId> mounted;  // files of it are being transferred
  std::set<base::WorkspaceId> leased;   // somebody holds it
  std::set<TreeKey> trees_used_lately;  // a create may be about to stand on them
  std::set<base::RepoId> repos_used_lately;
  // Of a workspace's frozen layers: what only it needs, and all that its archive would have.
  struct Frozen {
    uint64_t own_bytes = 0;
    uint64_t all_bytes = 0;
  };
  std::map<base::WorkspaceId, Frozen> frozen;
  int64_t age_ms = 0;  // the store's
};

// An archive holds the base commit's objects, too, and is about half as large as what it packs.
uint64_t likely_archive_bytes(uint64_t layer_bytes, uint64_t object_bytes);

struct GcRules {
  bool archives = false;  // there is somebody who can archive
  int64_t archive_after_ms = 0;
  bool archive_elsewhere = false;  // on another file system: all of it is gained
};

// In the order in which they are taken; what is kept comes after what goes.
std::vector<GcRow> plan_gc(const GcFacts& facts, const GcRules& rules);

}  // namespace moorage::workspace
