// The API's answers as JSON text. Fields follow docs/openapi.yaml: times are ISO UTC strings,
// unknown values are left out. A text that is not UTF-8 is shown with replacement characters, and
// complete in a second field with the suffix _b64.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/probe.h"
#include "backends/remote/places.h"
#include "base/os/files.h"
#include "base/utf8.h"
#include "base/wire/journal.h"
#include "layers/tree_files.h"
#include "state_db/event.h"
#include "workspace/access/placement.h"
#include "workspace/best_of/best_of.h"
#include "workspace/changes/changes.h"
#include "workspace/recovery/doctor.h"
#include "workspace/recovery/rescue.h"
#include "workspace/verbs/execs.h"
#include "workspace/verbs/moves.h"
#include "workspace/verbs/requests.h"
#include "workspace/verbs/snapshots.h"
#include "workspace/verbs/top.h"

namespace moorage::daemon {

using base::lossy_utf8;

struct RepositoryView {
  state_db::RepositoryRow row;
  std::string tip;  // commit of the default branch
  uint64_t workspaces = 0;
};

std::string repository_json(const RepositoryView& view);
std::string repositories_json(const std::vector<RepositoryView>& views);

struct StoreSpace {
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;
  uint64_t used_bytes = 0;
};
StoreSpace space_of(const std::string& store, uint64_t used_bytes = 0);
std::string workspace_json(const workspace::WorkspaceView& view);
std::string workspaces_json(const workspace::WorkspacePage& page, const StoreSpace& space);
std::string snapshot_json(const state_db::SnapshotRow& row);
std::string snapshots_json(const std::vector<state_db::SnapshotRow>& rows);
std::string forks_json(const std::vector<workspace::WorkspaceView>& views);
std::string lineage_json(const workspace::Snapshots::Lineage& lineage);
std::string move_json(const workspace::MovePlan& plan);
std::string best_of_json(const workspace::BestOfView& view);
std::string best_ofs_json(const std::vector<workspace::BestOfView>& views);
std::string comparison_json(const workspace::ComparisonView& view);
std::string lease_json(const std::optional<workspace::LeaseView>& lease);
std::string status_json(const workspace::ChangeList& list);
// Each file that the patch lacks is a line "# moorage: {JSON}" on top, which git apply skips.
std::string patch_text(workspace::Patch patch);
std::string diff_stat_json(const std::vector<workspace::DiffStat>& stats);
std::string listing_json(const std::string& path, const layers::Listing& listing);
// `sha256_hex`: of the bytes written.
std::string file_json(const std::string& path, const layers::FileEntry& entry,
                      const std::string& sha256_hex);

// `accepted`: bytes of standard input taken so far, if requested.
std::string exec_json(const workspace::ExecView& view, std::optional<uint64_t> accepted = {});
std::string execs_json(const std::vector<workspace::ExecView>& views);
std::string top_json(const workspace::TopView& view, const StoreSpace& space);
std::string history_json(const workspace::Execs::History& history);
std::string offset_json(uint64_t offset);
// The same with output missing before it, and with output after the command's end.
std::string gap_json(uint64_t offset, const base::Gap& gap);
std::string late_json(uint64_t offset, int64_t wall_ms);
std::string notice_json(const std::string& text);

std::string rescued_json(const std::vector<workspace::RescuedWorkspace>& found,
                         const StoreSpace& space, const std::string& why);
// `storage`: the storage in use and why; may be empty.
std::string diagnosis_json(const workspace::Diagnosis& diagnosis, const std::string& storage);

std::string event_json(const state_db::Event& event);

// Answers of GET /v1/info and GET /v1/config; plain data, filled in where the parts are wired.
struct InfoView {
  std::string version;
  int pid = 0;  // of the daemon
  std::string store_id;
  std::string store;
  std::string kernel;
  std::string cgroup;
  std::vector<backends::Check> checks;
  std::vector<std::pair<std::string, backends::Capabilities>> backends;  // by name
  std::map<std::string, std::vector<backends::PlaceUse>> places;  // of remote backends, by name
  StoreSpace space;
  uint64_t workspaces = 0;
  uint64_t sandboxes = 0;
  uint64_t execs_running = 0;
  std::optional<uint64_t> rules;  // of the host's policy; unset: not evaluated now
  // Those that may apply to the caller's workspaces.
  std::vector<workspace::PlacementRule> own_rules;
  std::optional<workspace::ReplicaStatus> replica;  // of the store's replica, if configured
  std::string rescue;  // why only rescue mode is served; empty in normal operation
};
std::string info_json(const InfoView& info);

struct SettingView {
  std::string name;
  std::string value;
  std::string unit;
  std::string source;
  std::string help;
};
std::string settings_json(const std::vector<SettingView>& settings);
struct ReloadView {
  size_t rules = 0;                       // now in force
  std::vector<std::string> need_restart;  // other settings that differ in the file
};
std::string reload_json(const ReloadView& done);

}  // namespace moorage::daemon
