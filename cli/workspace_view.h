// What the fields of a workspace mean to a person; shared by `ls` and `show`.
#pragma once

#include <cstdint>
#include <string>

#include "cli/json.h"
#include "cli/table.h"

namespace moorage::cli {

// True when the workspace was looked at and is not what it should be.
bool needs_check(const Json& workspace);
// "running", "idle 3h", "stopped", "CHECK", or the life cycle's word when it is not ready.
Cell state_cell(const Json& workspace, int64_t now_ms);
// "main", "main -23".
std::string base_text(const Json& workspace);
// "my-agent 2h14m", "-".
std::string doing_text(const Json& workspace, int64_t now_ms);
// "37 files", "unpushed", "-".
// "off-host copy 12 s behind"; empty: there is to be none.
std::string off_host_text(const Json& replica);
std::string changes_text(const Json& workspace);
// "you", "uid 1004", "-"; holders and owners alike.
std::string person_text(const Json& place);
// "agent-7", "agent-7 (uid 1004)", "-": who has the lease.
std::string holder_text(const Json& holder);
// With its generation and when it was heard of.
std::string holder_line(const Json& lease);
// ms since the time in that field; -1 when there is none.
int64_t age_of(const Json& json, const std::string& field, int64_t now_ms);
// "sn_4 of shop (ws_3) in store 1a2b3c4d", of a fork that was imported.
std::string origin_text(const Json& forked_elsewhere);
// "4f1c2e9": seven digits of a commit.
std::string short_commit(const std::string& commit);

}  // namespace moorage::cli
