// A note on disk a workspace, STORE/workspaces/<ws>/about.json: what a person needs to know of it
// where the database cannot be read (rescue.h). The rows are the truth and the note follows them:
// the reconciler writes it a few seconds after `ready`, and again where it is missing, torn or old.
// No verb waits for it, and nobody syncs it: it is for the day when the database is gone, and until
// the kernel has written both the database is there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "state_db/workspaces.h"
#include "workspace/context.h"

namespace moorage::workspace {

struct About {
  base::WorkspaceId id;
  std::string store;  // its id
  std::string name;
  uint32_t owner_uid = 0;
  std::optional<uint32_t> team_gid;
  base::RepoId repository;
  std::string repo_name;
  std::string repo_url;  // never with a credential
  std::string base_ref;
  std::string base_commit;
  std::string branch;
  std::vector<base::LayerId> layers;  // newest first
  int64_t created_wall_ms = 0;
};

std::string about_path(const std::string& store, base::WorkspaceId id);
std::string write_about_text(const About& about);
// Nothing: it is none of ours, or only a part of one.
std::optional<About> parse_about(std::string_view text);
std::optional<About> read_about(const std::string& store, base::WorkspaceId id);

// Writes the note where it does not say what the rows say. A failure is only logged: the rows are
// written, and the reconciler tries again.
void keep_about(Context& context, const state_db::WorkspaceRow& row);

}  // namespace moorage::workspace
