#include "workspace/recovery/lost_work.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "state_db/store.h"
#include "state_db/tables/facts.h"
#include "workspace/recovery/seen.h"

namespace moorage::workspace {
namespace {

using base::LogLevel;

// Names of directories moved aside have a time after the id.
template <typename Id>
Id highest_in(const std::string& directory) {
  Id highest;
  for (const auto& name : base::list_directory_if_exists(directory)) {
    if (const auto id = Id::parse(name.substr(0, name.find('-')))) highest = std::max(highest, *id);
  }
  return highest;
}

base::ExecId highest_exec(const std::string& directory) {
  base::ExecId highest;
  for (const auto& name : base::list_directory_if_exists(directory)) {
    if (!name.starts_with(base::WorkspaceId::kPrefix)) continue;
    highest = std::max(highest, highest_in<base::ExecId>(directory + "/" + name + "/journal"));
  }
  return highest;
}

// True: state.db did not know this id.
template <typename Id>
bool raise(Context& context, Id used) {
  if (!state_db::raise_counter(context.store, used)) return false;
  base::log(LogLevel::warning, "reconcile.id_forgotten",
            {{"id", used}, {"effect", "new ids start above it"}});
  return true;
}

// Returns the event text.
std::string set_aside(Context& context, const std::string& directory, const std::string& name) {
  std::string time = base::format_utc(context.store.clock().wall_ms());
  std::erase(time, ':');
  const std::string from = directory + "/" + name;
  const std::string to = context.options.lost() + "/" + name + "-" + time;
  base::make_directories(context.options.lost());
  base::rename_into_place(from, to);
  const std::string hint = "state.db does not know it; was an older one restored?";
  base::log(LogLevel::error, "reconcile.set_aside", {{"path", from}, {"now", to}, {"hint", hint}});
  return from + " was moved to " + to + ": " + hint;
}

// Moves each one separately: a directory that cannot be moved stays and harms nothing. One commit
// holds all events: there may be thousands, and the daemon is not ready yet.
void set_aside_unlisted(Context& context, const std::string& directory,
                        const std::vector<Unlisted>& unlisted) {
  std::vector<std::string> events;
  for (const auto& [name, has_id] : unlisted) {
    if (!has_id) continue;
    try {
      events.push_back(set_aside(context, directory, name));
    } catch (const base::Error& error) {
      base::log(LogLevel::error, "reconcile.set_aside",
                {{"path", directory + "/" + name}, {"error", error.message()}});
    }
  }
  if (events.empty()) return;
  context.store.transaction([&] {
    for (const auto& event : events) context.store.add_event("store.set_aside", {}, event);
  });
}

}  // namespace

void raise_ids(Context& context) {
  const std::string& store = context.options.store;
  const std::string lost = context.options.lost();
  const auto layer =
      std::max(highest_in<base::LayerId>(store + "/layers"), highest_in<base::LayerId>(lost));
  raise(context, std::max(highest_in<base::WorkspaceId>(store + "/workspaces"),
                          highest_in<base::WorkspaceId>(lost)));
  // A workspace whose create was interrupted may have no directory, but it got its own layer: there
  // were never more workspaces than layers.
  if (raise(context, layer)) raise(context, base::WorkspaceId{layer.value});
  raise(context, std::max(highest_exec(store + "/workspaces"), highest_exec(lost)));
  raise(context, highest_in<base::SandboxId>(store + "/sandboxes"));
  raise(context, highest_in<base::RepoId>(store + "/repos"));
}

void keep_lost_work(Context& context) {
  const std::string& store = context.options.store;
  set_aside_unlisted(context, store + "/layers", unlisted_layers(context));
  set_aside_unlisted(context, store + "/workspaces", unlisted_workspaces(context));
}

}  // namespace moorage::workspace
