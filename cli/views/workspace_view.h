// The fields of a workspace as text for people; shared by `ls` and `show`.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/client/json.h"
#include "cli/output/table.h"

namespace moorage::cli {

class Context;

// True when a check found the workspace damaged or changed outside.
bool needs_check(const Json& workspace);
// What a person types for the workspaces of a list: the name, or the id where the name is
// another's, too. One's own name always means one's own workspace.
class TypedNames {
 public:
  explicit TypedNames(const std::vector<Json>& workspaces);
  std::string of(const Json& workspace) const;

 private:
  std::map<std::string, int> live_;  // how many have that name
};
// "running", "idle 3h", "stopped", "CHECK", or the life cycle state when it is not ready.
Cell state_cell(const Json& workspace, int64_t now_ms);
// "main", "main -23".
std::string base_text(const Json& workspace);
// " with your uncommitted work"; empty: its base is a commit alone.
std::string work_text(const Json& workspace);
std::string blocked_text(const Json& workspace);  // empty: it is not
// After the word "stopped": "idle for 30m", "by alice"; empty: it runs, or never ran.
std::string stop_reason(const Json& workspace);
// "my-agent 2h14m", "-"; of a stopped one why it was stopped: "idle for 30m".
std::string doing_text(const Json& workspace, int64_t now_ms);
// "37 files", "unpushed", "-".
std::string changes_text(const Json& workspace);
// "replica 12 s behind"; empty: none configured.
std::string off_host_text(const Json& replica);
// How the changes of a machine with that overlay ("root", "user", "none") are found.
std::string search_text(const std::string& overlay);
std::string held_text(const Json& limits);  // the limits that hold on such a machine
// How far the files here are behind the other machine; empty: it runs here.
std::string remote_text(const Json& remote);
// What a sandbox elsewhere costs in hours; empty: it runs here.
std::string hours_text(const Json& sandbox, int64_t now_ms);
// The owner of a workspace or a command: "you", "alice", "uid 1004", "-".
std::string owner_text(const Json& object);
bool is_ours(const Json& workspace);
// "agent-7", "agent-7 (alice)", "-": the holder of the lease.
std::string holder_text(const Json& holder);
// The same with its generation and last heartbeat.
std::string holder_line(const Json& lease);
// ms since the time in that field; -1 when it is missing.
int64_t age_of(const Json& json, const std::string& field, int64_t now_ms);
// "64K"; for a missing field "0", or "-" from the second.
std::string size_text(const Json& json, std::string_view field);
std::string size_or_dash(const Json& json, std::string_view field);
// "sn_4 of shop (ws_3) in store 1a2b3c4d", for an imported fork.
std::string origin_text(const Json& forked_elsewhere);
// "4f1c2e9": seven digits of a commit.
std::string short_commit(const std::string& commit);
// "main" of "refs/heads/main", "pull/7/head" of "refs/pull/7/head".
std::string short_ref(const std::string& ref);
// Notes on standard error from which commit the changes of the workspace count, if that is not the
// one at which it began.
void note_moved_base(Context& context, const std::string& name);

}  // namespace moorage::cli
