// The part of doctor (doctor.h) that checks layers, journals, the host's mounts and the store's own
// files.
#include <fcntl.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/os/files.h"
#include "base/os/mount.h"
#include "base/os/process.h"
#include "base/wire/journal.h"
#include "state_db/store.h"
#include "state_db/tables/layers.h"
#include "workspace/archive/store.h"
#include "workspace/recovery/doctor.h"
#include "workspace/recovery/seen.h"

namespace moorage::workspace {
namespace {

using state_db::ExecState;
using state_db::WorkspaceState;

constexpr uint64_t kLeastFree_bytes = 32 << 20;
constexpr uint64_t kLeastFree_inodes = 1'000;
constexpr std::chrono::seconds kJournalsTime{120};

uint64_t size_of(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0;
}

bool has_damaged_tail(const std::string& path) {
  const base::Fd file = base::open_file(path, O_RDONLY | O_NOFOLLOW);
  base::JournalReader reader(file.get());
  while (reader.next()) {
  }
  return reader.damaged();
}

// Unescapes a field of /proc/self/mountinfo: a space is \040.
std::string unescaped(std::string_view field) {
  std::string text;
  for (size_t i = 0; i < field.size(); ++i) {
    if (field[i] == '\\' && i + 3 < field.size()) {
      text += static_cast<char>((field[i + 1] - '0') * 64 + (field[i + 2] - '0') * 8 +
                                (field[i + 3] - '0'));
      i += 3;
    } else {
      text += field[i];
    }
  }
  return text;
}

}  // namespace

void Doctor::layers(Findings& found) {
  for (const auto& [name, has_id] : unlisted_layers(context_)) {
    found.push_back({"layers", Severity::error, context_.options.store + "/layers/" + name,
                     "layers/" + name + " contains work that state.db does not list",
                     has_id ? mend_of(state_db::Orphan::layer) : "",
                     has_id ? "" : "examine it, then move it away"});
  }
  for (const auto& row : state_db::LayerTable(context_.store).unused()) {
    found.push_back({"layers", Severity::note, row.id.str(),
                     row.id.str() + " is in state.db, but no workspace uses it"});
  }
  state_db::WorkspaceQuery all;
  all.with_deleted = true;
  for (const auto& row : state_db::WorkspaceTable(context_.store).list(all)) {
    const bool should = row.state == WorkspaceState::ready || row.state == WorkspaceState::deleted;
    if (!should || row.purge_wall_ms || !row.layer) continue;
    const auto archive = state_db::ArchiveTable(context_.store).find(row.id);
    if (archive && archive->whole) continue;  // deleted while it was archived
    for (const char* part : {"/tree/upper", "/home/upper", "/system/upper"}) {
      const std::string path = context_.storage.layer_path(row.layer) + part;
      if (base::path_exists(path) || at_work(row.id.str())) continue;
      found.push_back({"layers", Severity::error, row.id.str(),
                       row.name + " has lost " + path.substr(context_.options.store.size() + 1), "",
                       "restore " + path + " from a backup"});
      break;
    }
  }
}

void Doctor::archives(Findings& found, bool deep) {
  const ArchiveStore store(context_);
  for (const auto& path : store.unknown()) {
    found.push_back({"archives", Severity::error, path,
                     path + " is an archive of this store that state.db does not list", "",
                     "examine it: moorage import " + path + "; then move it away"});
  }
  for (const auto& archive : state_db::ArchiveTable(context_.store).list()) {
    const auto row = state_db::WorkspaceTable(context_.store).get(archive.workspace);
    if (row.purge_wall_ms || at_work(row.id.str())) continue;
    const std::string path = store.path(archive);
    const bool hot = row.layer && base::path_exists(context_.storage.layer_path(row.layer));
    const auto add = [&](Severity severity, const std::string& text, const std::string& mend,
                         const std::string& command) {
      found.push_back({"archives", severity, row.id.str(), text, mend, command});
    };
    if (!archive.whole) {
      add(Severity::warning, row.name + " was restored, but its archive is still in " + path,
          "the archive is removed", "");
    } else if (!store.is_there(archive)) {
      add(Severity::error,
          row.name + " is archived, but " + path + " is missing or has the wrong size" +
              (hot ? "; " + row.layer.str() + " exists and is kept" : ""),
          "", "mount archive.directory, or restore the file from a backup");
    } else if (hot && row.state == WorkspaceState::archived &&
               !is_as_archived(context_, row, archive)) {
      add(Severity::error,
          row.name + " is archived, but " + context_.storage.layer_path(row.layer) +
              " exists and differs from its archive; both are kept (was an older state.db "
              "restored?)",
          "",
          "move the layer away; then moorage unarchive " + row.name +
              ", and copy the files that you need into it");
    } else if (hot && row.state == WorkspaceState::archived) {
      add(Severity::warning, row.name + " is archived, but " + row.layer.str() + " still exists",
          "the layer is removed: the archive contains all of it", "");
    } else if (deep) {
      try {
        store.check(archive);
      } catch (const Error& error) {
        add(Severity::error,
            path + ", the archive of " + row.name + ", is damaged: " + error.message(), "",
            "restore it from a backup");
      }
    }
  }
}

void Doctor::journals(Findings& found) {
  for (const auto& [name, has_id] : unlisted_workspaces(context_)) {
    found.push_back({"journals", Severity::error, context_.options.store + "/workspaces/" + name,
                     "workspaces/" + name + " contains records that state.db does not list",
                     has_id ? mend_of(state_db::Orphan::workspace_directory) : "",
                     has_id ? "" : "examine it, then move it away"});
  }
}

void Doctor::execs(Findings& found, bool deep) {
  const auto until = std::chrono::steady_clock::now() + kJournalsTime;
  state_db::ExecTable table(context_.store);
  for (const auto& exec : table.running()) {
    const auto sandbox = state_db::SandboxTable(context_.store).find(exec.request.sandbox);
    const bool gone = !sandbox || sandbox->state == state_db::SandboxState::destroyed;
    if (!gone && watcher_.progress(exec.id)) continue;
    if (at_work(exec.request.workspace.str())) continue;
    found.push_back({"execs", Severity::error, exec.id.str(),
                     exec.id.str() + (gone ? " should be running, but its sandbox is gone"
                                           : " is running, but nothing watches for its end"),
                     gone ? "its end is read from its journal, or it becomes interrupted" : "",
                     gone ? "" : "restart mooraged"});
  }
  for (const auto& workspace : state_db::WorkspaceTable(context_.store).list()) {
    const std::string place =
        context_.options.store + "/workspaces/" + workspace.id.str() + "/journal";
    for (const auto& name : base::list_directory_if_exists(place)) {
      const auto id = base::ExecId::parse(name);
      const auto row = id ? table.find(*id) : std::nullopt;
      const std::string path = place + "/" + name + "/output";
      if (!row || row->request.workspace != workspace.id) {
        found.push_back({"journals", Severity::error, place + "/" + name,
                         "the journal " + name + " of " + workspace.name + " has no command", "",
                         "inspect it: " + path + "; then move it away"});
        continue;
      }
      if (row->state == ExecState::running) continue;
      journal(found, *row, path, deep && std::chrono::steady_clock::now() < until);
    }
  }
}

void Doctor::journal(Findings& found, const state_db::ExecRow& exec, const std::string& path,
                     bool deep) const {
  const std::string name = exec.id.str();
  const std::string what = "the journal of " + name;
  const auto add = [&](Severity severity, const std::string& text, const std::string& command) {
    found.push_back({"journals", severity, name, what + text, "", command});
  };
  const std::string less =
      " contains less than the " + std::to_string(exec.outcome.output_bytes) + " bytes of output";
  try {
    const bool is_short = size_of(path) + exec.outcome.omitted_bytes < exec.outcome.output_bytes;
    if (is_short && may_lose_output(exec)) {
      add(Severity::note,
          less +
              ": it ran before this boot and without --sync, so a power cut may have "
              "lost output that was not yet on the disk",
          "the rest: moorage logs " + name);
    } else if (is_short) {
      add(Severity::error, less, "restore " + path + " from a backup");
    } else if (deep && base::path_exists(path) && has_damaged_tail(path)) {
      // Not an error if the file is missing: the command died before it wrote anything.
      add(Severity::note, " ends in the middle of a record",
          "the output before it is intact: moorage logs " + name);
    }
  } catch (const Error& error) {
    add(Severity::error, " cannot be read: " + error.message(), error.hint());
  }
}

// Output is as durable as any file: a power cut may lose its end unless it was synced.
bool Doctor::may_lose_output(const state_db::ExecRow& exec) const {
  if (!exec.imported_from.empty()) return false;
  const auto sandbox = state_db::SandboxTable(context_.store).find(exec.request.sandbox);
  return sandbox && sandbox->boot_id != base::boot_id();
}

void Doctor::mounts(Findings& found) {
  const std::string ours = context_.options.store + "/";
  const std::string prefix = "moorage-" + context_.store.store_id() + "-";
  const std::string table = base::read_file("/proc/self/mountinfo", 64 << 20);
  for (const auto& mount : base::parse_mounts(table)) {
    const std::string point = unescaped(mount.target);
    const bool is_archive = point == ours + "archive";  // may be another file system
    if ((!point.starts_with(ours) || is_archive) && point.find(prefix) == std::string::npos)
      continue;
    found.push_back({"mounts", Severity::error, point,
                     "unexpected mount at " + point + ": moorage does not mount there", "",
                     "umount '" + point + "'"});
  }
}

void Doctor::store(Findings& found) {
  const std::string& place = context_.options.store;
  struct stat status {};
  base::check(lstat(place.c_str(), &status), "stat " + place);
  if (status.st_uid != 0 || (status.st_mode & 07777) != 0700) {
    found.push_back({"rights", Severity::error, place,
                     place + " is accessible to other users: it must belong to root with mode 0700",
                     "owner and mode are corrected", "", Repair::take_back_store});
  }
  if (!context_.store.has_reserve()) {
    found.push_back({"reserve", Severity::warning, place + "/reserve",
                     "the reserve for a full disk is missing", "it is created", "",
                     Repair::make_reserve});
  }
  const auto space = base::file_system_space(place);
  const bool counts_inodes = space.total_inodes > 0;  // btrfs makes them as they are needed
  if (space.free_bytes < kLeastFree_bytes ||
      (counts_inodes && space.free_inodes < kLeastFree_inodes)) {
    const std::string inodes =
        counts_inodes ? " and " + std::to_string(space.free_inodes) + " inodes" : "";
    found.push_back({"space", Severity::warning, place,
                     "the disk is nearly full: " + std::to_string(space.free_bytes >> 20) + " MiB" +
                         inodes + " are free",
                     "", "moorage du shows what uses it; moorage rm --purge NAME frees space"});
  }
  const auto lost = base::list_directory_if_exists(context_.options.lost());
  if (!lost.empty()) {
    found.push_back(
        {"lost", Severity::warning, context_.options.lost(),
         (lost.size() == 1 ? "a layer or journal is"
                           : std::to_string(lost.size()) + " layers and journals are") +
             " kept in lost/",
         "", "copy from " + context_.options.lost() + " what you need, then remove the rest"});
  }
  for (const auto& name : upload_leftovers(context_)) {
    found.push_back({"uploads", Severity::warning, name,
                     "an upload was interrupted and may have left a temporary file",
                     "the file and its record are removed"});
  }
}

}  // namespace moorage::workspace
