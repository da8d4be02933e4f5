#include "workspace/chain/integrity.h"

#include <sys/stat.h>

#include "base/background.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/os/files.h"
#include "base/os/process.h"
#include "base/size_text.h"
#include "layers/seal/seal_list.h"
#include "state_db/store.h"
#include "state_db/tables/layers.h"
#include "state_db/tables/repositories.h"
#include "workspace/chain/initial_files.h"
#include "workspace/context/disk_use.h"

namespace moorage::workspace {
namespace {

using state_db::IntegrityState;
using std::chrono::steady_clock;

bool is_directory(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

std::string text_of(const layers::Differences& differences, int64_t sealed_wall_ms) {
  if (differences.count == 0) {
    return "its files differ from those left at " + base::format_utc(sealed_wall_ms) +
           "; it has too many paths to find the changed one";
  }
  std::string text = base::count_text(differences.count, "path") + " " +
                     base::verb_text(differences.count, "differ") + " from the files left at " +
                     base::format_utc(sealed_wall_ms);
  const char* before = ": ";
  for (const auto& path : differences.first) {
    text += before + base::escape_for_message(path);
    before = ", ";
  }
  return differences.count > differences.first.size() ? text + "..." : text;
}

std::string list_path(Context& context, base::WorkspaceId id) {
  return context.options.store + "/workspaces/" + id.str() + "/seal";
}

// The first of its directories that is missing.
std::string missing_part(Context& context, const state_db::WorkspaceRow& row) {
  for (const auto& layer : state_db::LayerTable(context.store).chain(row.layer)) {
    for (const char* part : {"/tree/upper", "/home/upper", "/system/upper"}) {
      if (!is_directory(context.storage.layer_path(layer.id) + part)) return layer.id.str() + part;
    }
  }
  return {};
}

[[noreturn]] void lose(Context& context, const state_db::WorkspaceRow& row, const std::string& what,
                       const std::string& hint) {
  state_db::IntegrityTable table(context.store);
  const auto known = table.get(row.id);
  if (known.state != IntegrityState::lost || known.reason != what)
    table.set(row.id, IntegrityState::lost, what);
  throw Error(Code::corrupted, row.name + " is lost: " + what, hint);
}

void compare(Context& context, const state_db::WorkspaceRow& row,
             const state_db::IntegrityRow& known) {
  state_db::IntegrityTable table(context.store);
  layers::Seal now;
  bool differs = false;
  bool has_list = false;
  layers::Differences differences;
  try {
    const std::string layer = context.storage.layer_path(row.layer);
    now = layers::take_seal(layer);
    differs = now.hash != known.seal;
    if (differs) {
      layers::SealListComparison comparison(list_path(context, row.id));
      has_list = comparison.has_list();
      now =
          layers::take_seal(layer, {}, [&comparison](std::string_view path, std::string_view hash) {
            comparison.add(path, hash);
          });
      differences = comparison.finish();
    }
  } catch (const Error& error) {
    if (error.code() == Code::not_found) throw;
    // Running out of time for the comparison does not mean that anything changed.
    if (error.code() == Code::resource_exhausted && !differs) {
      if (known.state == IntegrityState::changed_outside) return;
      return table.set(row.id, IntegrityState::intact, "files not compared: " + error.message());
    }
    return table.set(row.id, IntegrityState::changed_outside,
                     "its files could not be compared: " + error.message());
  }
  if (now.hash == known.seal) {
    if (known.state != IntegrityState::intact) table.set(row.id, IntegrityState::intact);
    return;
  }
  std::string reason = text_of(differences, known.sealed_wall_ms);
  if (!has_list) reason = "its files differ from those left; their list is missing";
  if (known.state == IntegrityState::changed_outside && known.reason == reason) return;
  table.set(row.id, IntegrityState::changed_outside, reason);
  base::log(base::LogLevel::warning, "workspace.changed_outside",
            {{"ws", row.id}, {"reason", reason}});
}

}  // namespace

void IntegrityCheck::look_for_loss(const state_db::WorkspaceRow& row) {
  const std::string missing = missing_part(context_, row);
  if (missing.empty()) return;
  if (initial_files_may_be_partial(context_, row)) return;
  // A mere query holds no lock: meanwhile the workspace may have been archived or purged, or moved
  // to other layers, which is not a loss.
  const auto now = state_db::WorkspaceTable(context_.store).get(row.id);
  if (now.state != row.state || now.layer != row.layer) return;
  if (missing_part(context_, now).empty()) return;
  lose(context_, row, missing + " is missing from the store",
       "restore " + context_.options.store + "/layers/" + missing +
           " from a backup; nothing was changed");
}

void IntegrityCheck::lose_base(const state_db::WorkspaceRow& row, const Error& error) {
  const auto repository = state_db::RepositoryTable(context_.store).get(row.repository);
  const std::string way =
      has_upstream(repository.scope)
          ? "make upstream serve that commit again, then: moorage repo fetch " +
                row.repository.str()
          : "import it again from a checkout that has the commit: moorage create --from DIR";
  lose(context_, row,
       "its base commit " + row.base_commit + " is not available: " + error.message(),
       "its own files are intact in " + context_.storage.layer_path(row.layer) + "; " + way);
}

void IntegrityCheck::look(const state_db::WorkspaceRow& row, std::chrono::milliseconds max_age) {
  look_for_loss(row);
  const auto known = state_db::IntegrityTable(context_.store).get(row.id);
  if (known.seal.empty()) {
    if (known.state != IntegrityState::lost) return;
    return state_db::IntegrityTable(context_.store)
        .set(row.id, IntegrityState::intact, "the missing files are back");
  }
  {
    const std::lock_guard lock(mutex_);
    const auto last = looked_.find(row.id);
    if (last != looked_.end() && steady_clock::now() - last->second < max_age) return;
  }
  compare(context_, row, known);
  const std::lock_guard lock(mutex_);
  if (looked_.size() > 10'000) looked_.clear();
  looked_[row.id] = steady_clock::now();
}

void IntegrityCheck::begin_writing(base::WorkspaceId id) {
  state_db::IntegrityTable table(context_.store);
  const auto known = table.get(id);
  const bool first = known.state == IntegrityState::unknown;
  table.set(id, first ? IntegrityState::intact : known.state, known.reason);
  table.clear_seal(id);
}

IntegrityCheck::Taken IntegrityCheck::take(base::WorkspaceId workspace, base::LayerId layer) {
  Taken taken;
  try {
    const base::Background background;
    base::make_directories(context_.options.store + "/workspaces/" + workspace.str());
    layers::SealListWriter list(list_path(context_, workspace));
    taken.seal = layers::take_seal(
        context_.storage.layer_path(layer), {},
        [&list](std::string_view path, std::string_view hash) { list.add(path, hash); });
    list.commit();
  } catch (const Error& error) {
    taken.seal.reset();
    taken.why_none = "its files cannot be compared at the next start: " + error.message();
    base::log(base::LogLevel::warning, "workspace.not_sealed",
              {{"ws", workspace}, {"error", error.message()}});
  }
  return taken;
}

void IntegrityCheck::keep(const state_db::WorkspaceRow& row, const Taken& taken) {
  state_db::IntegrityTable table(context_.store);
  const std::string missing = missing_part(context_, row);
  if (!missing.empty()) {
    return table.set(row.id, IntegrityState::lost, missing + " is missing from the store");
  }
  table.set(row.id, IntegrityState::intact, taken.why_none);
  table.set_seal(row.id, taken.seal ? taken.seal->hash : "");
  if (!taken.seal) return;
  DiskUse(context_).keep_writable(row, taken.seal->bytes, taken.seal->files);
}

void IntegrityCheck::keep_returned(const state_db::WorkspaceRow& row, const Taken& taken) {
  state_db::IntegrityTable table(context_.store);
  const auto known = table.get(row.id);
  if (known.state == IntegrityState::unknown || known.state == IntegrityState::lost)
    return keep(row, taken);
  // A workspace changed outside has no seal until a person accepts it, or it ran.
  const bool seals = taken.seal && known.state == IntegrityState::intact;
  table.set_seal(row.id, seals ? taken.seal->hash : "");
  if (!taken.seal) return;
  DiskUse(context_).keep_writable(row, taken.seal->bytes, taken.seal->files);
}

void IntegrityCheck::set_recovered(const state_db::SandboxRow& sandbox) {
  if (sandbox.started_wall_ms == 0) return;  // nothing ran in it
  state_db::IntegrityTable table(context_.store);
  const auto known = table.get(sandbox.workspace);
  if (known.state == IntegrityState::lost || known.state == IntegrityState::changed_outside) return;
  const std::string when = base::format_utc(context_.store.clock().wall_ms());
  const std::string reason =
      sandbox.boot_id == base::boot_id()
          ? "recovered: its sandbox died, found at " + when + "; everything it wrote is kept"
      : sandbox.boot_id == state_db::kBootOfCopy
          ? "recovered: restored from a replica made while it ran, found at " + when +
                "; the last writes may be missing"
          : "recovered: the host went down while it ran, found at " + when +
                "; writes not synced before that may be missing";
  table.set(sandbox.workspace, IntegrityState::intact, reason);
}

void set_needs_repair(Context& context, base::WorkspaceId workspace, const std::string& reason) {
  if (!workspace) return;
  state_db::IntegrityTable(context.store)
      .set(workspace, state_db::IntegrityState::needs_repair, reason);
}

void clear_needs_repair(Context& context, base::WorkspaceId workspace) {
  if (!workspace) return;
  state_db::IntegrityTable table(context.store);
  if (table.get(workspace).state == state_db::IntegrityState::needs_repair)
    table.set(workspace, state_db::IntegrityState::intact, "repaired");
}

}  // namespace moorage::workspace
