#include "cli/views/workspace_view.h"

#include <unistd.h>

#include <algorithm>

#include "cli/client/accounts.h"
#include "cli/client/context.h"
#include "cli/output/text.h"

namespace moorage::cli {
namespace {

constexpr size_t kReasonColumns = 40;

// `name` is the daemon's for that uid: its host knows more users than the file of this one.
std::string person_text(const Json& who, const std::string& name) {
  const std::string text = who.text();
  if (text.empty() || text == "null") return "-";
  const int64_t uid = who.number({}, -1);
  if (uid < 0) return text;
  if (uid == static_cast<int64_t>(::getuid())) return "you";
  return name.empty() ? user_name(uid) : name;
}

}  // namespace

bool needs_check(const Json& workspace) {
  return workspace.text("integrity.state", "intact") != "intact";
}

TypedNames::TypedNames(const std::vector<Json>& workspaces) {
  for (const Json& workspace : workspaces) {
    if (workspace.text("state") != "deleted") ++live_[workspace.text("name")];
  }
}

std::string TypedNames::of(const Json& workspace) const {
  const std::string name = workspace.text("name");
  const bool is_live = workspace.text("state") != "deleted";
  if (is_live && (is_ours(workspace) || !workspace.has("owner"))) return name;
  const auto found = live_.find(name);
  const bool is_only = is_live && found != live_.end() && found->second == 1;
  return is_only ? name : workspace.text("id");
}

int64_t age_of(const Json& json, const std::string& field, int64_t now_ms) {
  const auto at = parse_utc(json.text(field));
  return at ? std::max<int64_t>(0, now_ms - *at) : -1;
}

std::string size_text(const Json& json, std::string_view field) {
  return format_size(static_cast<uint64_t>(json.number(field)));
}

std::string size_or_dash(const Json& json, std::string_view field) {
  return json.has(field) ? size_text(json, field) : "-";
}

Cell state_cell(const Json& workspace, int64_t now_ms) {
  if (needs_check(workspace)) return {"CHECK", Colour::red};
  if (workspace.flag("rescued")) {  // state.db cannot be read: shows the state on disk
    if (workspace.has("archive")) return {"archived", Colour::yellow};
    if (!workspace.items("lost_layers").empty()) return {"PART LOST", Colour::red};
    return {workspace.items("layers").empty() ? "no files" : "on disk", Colour::yellow};
  }
  const std::string state = workspace.text("state");
  if (state == "failed") return {state, Colour::red};
  if (state != "ready") return {state, Colour::yellow};
  const std::string sandbox = workspace.text("sandbox.state");
  if (sandbox == "running" && workspace.has("doing")) return {"running", Colour::green};
  if (sandbox == "running") {
    const int64_t idle = age_of(workspace, "sandbox.idle_since_at", now_ms);
    return {idle < 0 ? "idle" : "idle " + format_age(idle), Colour::plain};
  }
  const bool moving = sandbox == "starting" || sandbox == "stopping" || sandbox == "frozen";
  if (moving) return {sandbox, Colour::yellow};
  return {"stopped", Colour::dim};
}

std::string short_commit(const std::string& commit) { return commit.substr(0, 7); }

std::string short_ref(const std::string& ref) {
  for (const std::string_view prefix : {"refs/heads/", "refs/tags/", "refs/"})
    if (ref.starts_with(prefix)) return ref.substr(prefix.size());
  return ref;
}

void note_moved_base(Context& context, const std::string& name) {
  const Json workspace = Json::parse(context.api().get(context.workspace_path(name)));
  if (!workspace.has("base.moved_to")) return;
  context.note("the changes count from " + short_commit(workspace.text("base.moved_to")) +
               ", after a rebase or merge inside");
}

std::string base_text(const Json& workspace) {
  std::string ref = short_ref(workspace.text("base.ref"));
  if (ref.empty()) ref = short_commit(workspace.text("base.commit"));
  const int64_t behind = workspace.number("base.behind");
  if (ref.empty()) return "-";
  if (workspace.has("base.lost")) return ref + " rewritten";
  return behind > 0 ? ref + " -" + std::to_string(behind) : ref;
}

std::string work_text(const Json& workspace) {
  if (!workspace.has("base.work")) return {};
  return is_ours(workspace) ? " with your uncommitted work" : " with its owner's uncommitted work";
}

std::string blocked_text(const Json& workspace) {
  if (!workspace.has("blocked")) return {};
  return "blocked: " + workspace.text("blocked.host") + " (" + workspace.text("blocked.exec") + ")";
}

std::string stop_reason(const Json& workspace) {
  constexpr std::string_view kState = "stopped ";
  const std::string reason = workspace.text("stopped.reason");
  return reason.starts_with(kState) ? reason.substr(kState.size()) : reason;
}

std::string doing_text(const Json& workspace, int64_t now_ms) {
  if (workspace.has("blocked")) return blocked_text(workspace);
  const std::string reason = stop_reason(workspace);
  if (!reason.empty() && workspace.text("state") == "ready") return shorten(reason, kReasonColumns);
  const Json doing = workspace.at("doing");
  const std::vector<std::string> argv = doing.byte_list("argv");
  if (argv.empty()) return "-";
  const std::string program = argv[0].substr(argv[0].rfind('/') + 1);
  const int64_t age = age_of(doing, "since_at", now_ms);
  return age < 0 ? program : program + " " + format_age(age);
}

std::string off_host_text(const Json& replica) {
  if (!replica.is_object()) return {};
  const std::string state = replica.text("state");
  std::string text = "no replica yet";
  if (replica.has("behind_s"))
    text = "replica " + format_age_long(replica.number("behind_s") * 1000) + " behind";
  if (state == "failing" || state == "refused") text += ", not updated (moorage doctor)";
  return text;
}

std::string search_text(const std::string& overlay) {
  return overlay == "none" ? "changes found by comparing the whole tree"
                           : "changes found in an overlay (" + overlay + ")";
}

std::string held_text(const Json& limits) {
  std::string held;
  for (const Json& limit : limits.items()) {
    const std::string name = limit.text();
    held += (held.empty() ? "" : ", ") + (name == "pids" ? std::string("processes") : name);
  }
  return held.empty() ? "no limits hold there" : "limits hold on " + held;
}

std::string remote_text(const Json& remote) {
  if (!remote.is_object()) return {};
  std::string text = remote.flag("connected") ? "connected" : "not connected";
  text += remote.has("behind_ms")
              ? ", files here " + format_age(remote.number("behind_ms")) + " behind"
              : ", never synced";
  if (remote.has("overlay")) text += ", " + search_text(remote.text("overlay"));
  if (remote.has("limits")) text += ", " + held_text(remote.at("limits"));
  if (const std::string network = remote.text("network"); !network.empty())
    text += ", network " + network;
  if (remote.has("restored"))
    text += ", " + count_of(remote.number("restored"), "file") + " lost in a pause and sent again";
  if (remote.has("kept_ms"))
    text += ", kept by its provider for " + format_age(remote.number("kept_ms")) + " more";
  if (remote.number("waiting_packs") > 0)
    text += ", " + count_of(remote.number("waiting_packs"), "pack") + " not applied";
  if (remote.number("waiting_ends") > 0)
    text += ", " + count_of(remote.number("waiting_ends"), "command") + " waiting for its files";
  if (const std::string reason = remote.text("reason"); !reason.empty()) text += "; " + reason;
  return text;
}

std::string hours_text(const Json& sandbox, int64_t now_ms) {
  const Json remote = sandbox.at("remote");
  if (!remote.is_object()) return {};
  const int64_t age = age_of(sandbox, "started_at", now_ms);
  std::string text = age < 0 ? "" : "this sandbox " + format_age(age) + "; ";
  text += "its owner " + format_age(remote.number("user_ms_in_24h")) + " in 24 hours";
  if (remote.has("user_limit_h"))
    text += " of " + std::to_string(remote.number("user_limit_h")) + " h allowed";
  return text;
}

std::string changes_text(const Json& workspace) {
  const int64_t files = workspace.number("changes.files");
  if (files > 0) return count_of(files, "file");
  if (workspace.number("unpushed") > 0) return "unpushed";
  return workspace.has("changes") ? "none" : "-";  // or not counted yet
}

std::string holder_text(const Json& holder) {
  if (!holder.is_object()) return person_text(holder, {});
  const std::string who = person_text(holder.at("uid"), holder.text("user"));
  return who == "you" ? holder.text("holder") : holder.text("holder") + " (" + who + ")";
}

std::string holder_line(const Json& lease) {
  if (!lease.is_object()) return person_text(lease, {});
  return holder_text(lease) + ", lease " + lease.text("generation") + ", seen " +
         format_age_long(lease.number("seen_ms_ago")) + " ago";
}

std::string owner_text(const Json& object) {
  return person_text(object.at("owner"), object.text("owner_name"));
}

bool is_ours(const Json& workspace) {
  return workspace.number("owner", -1) == static_cast<int64_t>(::getuid());
}

std::string origin_text(const Json& forked_elsewhere) {
  return forked_elsewhere.text("snapshot") + " of " + forked_elsewhere.text("name") + " (" +
         forked_elsewhere.text("workspace") + ") in store " + forked_elsewhere.text("store");
}

}  // namespace moorage::cli
