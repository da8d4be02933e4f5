// Decides what collection may take, from rows alone: it walks, asks and changes nothing, so the
// plan can be shown before it runs. The order, least harm first: caches that a workspace declares,
// base trees that no layer uses, long-idle workspaces (archived, not removed), mirrors that nothing
// needs. Anything pinned, leased, running or being transferred is always kept. Ages come from the
// store (store_age.h): no clock jump makes anything old.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "state_db/tables/repositories.h"
#include "state_db/tables/workspaces.h"
#include "workspace/archive/cold_storage.h"
#include "workspace/context/metrics.h"

namespace moorage::workspace {

struct GcRow {
  GcRung rung = GcRung::cache;
  base::RepoId repository;
  std::string commit;           // of a base tree
  base::WorkspaceId workspace;  // of a cache, or the workspace itself
  std::string path;             // of a cache, as declared
  std::string subject;          // for people
  bool goes = false;
  std::string why;                // why taking it is safe, or why it is kept
  std::optional<uint64_t> bytes;  // the space it frees; unset: not measured
  std::optional<uint64_t> files;
};

using TreeKey = std::pair<base::RepoId, std::string>;

struct GcFacts {
  std::vector<state_db::WorkspaceRow> workspaces;  // all except purged ones
  std::vector<state_db::RepositoryRow> repositories;
  std::vector<state_db::BaseTreeRow> trees;
  std::set<TreeKey> depended_on;        // base trees that layers start from
  std::set<base::WorkspaceId> running;  // with a sandbox
  std::set<base::WorkspaceId> mounted;  // with a file transfer in progress
  std::set<base::WorkspaceId> leased;   // with a lease holder
  std::set<TreeKey> trees_used_lately;  // a create may be about to use them
  std::set<base::RepoId> repos_used_lately;
  std::map<base::WorkspaceId, LayerUse> frozen;
  int64_t age_ms = 0;  // the store's
};

struct GcRules {
  int64_t archive_after_ms = 7LL * 24 * 3'600'000;
  bool archive_elsewhere = false;  // on another file system, so all space is gained
  // A base tree requested more recently than this is kept: a create may be about to use it.
  std::chrono::milliseconds lately{600'000};
};

// In the order of taking; kept rows follow the rows to take.
std::vector<GcRow> plan_gc(const GcFacts& facts, const GcRules& rules);

}  // namespace moorage::workspace
