#include "workspace/verbs/compare.h"

#include "base/error.h"
#include "base/log.h"
#include "state_db/store.h"
#include "state_db/tables/layers.h"
#include "state_db/tables/snapshots.h"
#include "workspace/changes/stable_read.h"

namespace moorage::workspace {
namespace {

constexpr size_t kLookedAt = 20;  // newest execs to search, as pre_stop hooks do not count

std::optional<state_db::ExecRow> last_exec(Context& context, base::WorkspaceId id) {
  for (auto& row : state_db::ExecTable(context.store).list({.workspace = id, .limit = kLookedAt})) {
    if (row.request.hook.empty()) return std::move(row);
  }
  return std::nullopt;
}

ChangeSource at_fork(Context& context, const state_db::WorkspaceRow& fork,
                     const ChangeSource& now) {
  ChangeSource before = now;
  before.uppers.clear();
  const auto origin = state_db::SnapshotTable(context.store).find(fork.forked_from);
  // A snapshot dropped meanwhile has no layer: compare with its base commit instead.
  if (!origin || !origin->layer) return before;
  for (const auto& layer : state_db::LayerTable(context.store).chain(origin->layer)) {
    if (layer.cold) {
      throw Error(Code::conflict,
                  fork.name + " was forked from " + origin->id.str() + ", which is in an archive",
                  "moorage unarchive " + origin->workspace.str());
    }
    before.uppers.push_back(context.storage.layer_path(layer.id) + "/tree/upper");
  }
  return before;
}

struct Two {
  state_db::WorkspaceRow from;
  state_db::WorkspaceRow to;
};

Two find(Context& context, RemoteCopy& remote, const Caller& caller, const std::string& from,
         const std::string& to) {
  Two two{find_workspace(context.store, caller, from, Right::read),
          find_workspace(context.store, caller, to, Right::read)};
  if (two.from.repository != two.to.repository) {
    throw Error(Code::invalid_argument,
                two.from.name + " and " + two.to.name + " belong to different repositories",
                "moorage ls shows their repositories");
  }
  for (const auto* row : {&two.from, &two.to}) add_notice(caller, remote.refresh(row->id));
  return two;
}

}  // namespace

ComparisonView Comparison::compare(const Caller& caller, const std::string& from,
                                   const std::string& to) {
  Two two = find(context_, remote_, caller, from, to);
  ComparisonView view;
  view.files = look_at_changes(context_, {two.from.id, two.to.id}, [&](const auto& sources) {
    return changes_.stat(sources[0], sources[1]);
  });
  view.from = {std::move(two.from), {}};
  view.to = {std::move(two.to), {}};
  view.from.last = last_exec(context_, view.from.row.id);
  view.to.last = last_exec(context_, view.to.row.id);
  return view;
}

Patch Comparison::patch(const Caller& caller, const std::string& from, const std::string& to) {
  const Two two = find(context_, remote_, caller, from, to);
  return look_at_changes(context_, {two.from.id, two.to.id}, [&](const auto& sources) {
    return changes_.patch(sources[0], sources[1]);
  });
}

std::optional<state_db::AttemptDiff> Comparison::since_fork(const state_db::WorkspaceRow& fork) {
  try {
    return look_at_changes(context_, {fork.id}, [&](const auto& sources) {
      const ChangeSource& now = sources[0];
      const ChangeSource before = at_fork(context_, fork, now);
      state_db::AttemptDiff diff;
      for (const auto& file : changes_.stat(before, now)) {
        ++diff.files;
        diff.added += file.added;
        diff.removed += file.removed;
      }
      const Patch patch = changes_.patch(before, now);
      diff.bytes = patch.text.size();
      for (const auto& file : patch.left_out)
        if (file.why != repo_cache::LeftOut::kConverted)
          diff.bytes += repo_cache::binary_text_bytes(file.bytes);
      return std::optional(diff);
    });
  } catch (const Error& error) {
    if (error.code() != Code::resource_exhausted && error.code() != Code::conflict) throw;
    base::log(base::LogLevel::warning, "best_of.not_measured",
              {{"ws", fork.id}, {"error", error.message()}});
    return std::nullopt;
  }
}

}  // namespace moorage::workspace
