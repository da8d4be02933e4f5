// One note on disk for each workspace, STORE/workspaces/<ws>/about.json: the facts a person needs
// when the database is unreadable (workspace/recovery/rescue.h). The rows are authoritative and the
// note follows them: the reconciler writes it a few seconds after `ready`, and rewrites a missing,
// torn or stale one. No verb waits for it and nobody syncs it: it only matters when the database is
// lost, and the database exists at least until the kernel has written both.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "state_db/tables/workspaces.h"
#include "workspace/context/context.h"

namespace moorage::workspace {

struct About {
  base::WorkspaceId id;
  std::string store;  // the store's id
  std::string name;
  uint32_t owner_uid = 0;
  std::optional<uint32_t> team_gid;
  base::RepoId repository;
  std::string repo_name;
  std::string repo_url;  // never contains a credential
  std::string base_ref;
  std::string base_commit;
  std::string branch;
  std::vector<base::LayerId> layers;  // newest first
  int64_t created_wall_ms = 0;
};

std::string about_path(const std::string& store, base::WorkspaceId id);
std::string write_about_text(const About& about);
// nullopt: not one of our notes, or an incomplete one.
std::optional<About> parse_about(std::string_view text);
std::optional<About> read_about(const std::string& store, base::WorkspaceId id);

// Writes the note if it differs from the rows. A failure is only logged: the rows are safe, and the
// reconciler tries again.
void keep_about(Context& context, const state_db::WorkspaceRow& row);

}  // namespace moorage::workspace
