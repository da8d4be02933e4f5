#include "workspace/archive/contents.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>

#include "backends/registry.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "base/wire/journal_middle.h"
#include "layers/home_skeleton.h"
#include "repo_cache/base_tree.h"
#include "repo_cache/repo_cache.h"
#include "state_db/reads.h"
#include "state_db/store.h"
#include "state_db/tables/execs.h"
#include "workspace/archive/store.h"
#include "workspace/chain/initial_files.h"

namespace moorage::workspace {
namespace {

using base::LayerId;
using state_db::LayerRow;

constexpr std::chrono::hours kPackDeadline{2};
constexpr size_t kExecsAtOnce = 1000;

// Exports a running command as interrupted, with a copy of its output so far if it has a journal.
// nullopt: it has no journal, or has ended.
std::optional<SpooledFile> cut_short(Context& context, state_db::ExecRow& row,
                                     const std::string& path, const std::string& spool) {
  std::optional<SpooledFile> copy;
  base::JournalCopy copied;
  if (base::path_exists(path)) {
    const base::Fd file = base::open_file(path, O_RDONLY | O_NOFOLLOW);
    copy.emplace().fd = ArchiveStore::spool(spool);
    copied = base::copy_journal(file.get(), [&copy](std::string_view bytes) {
      base::write_all(copy->fd.get(), bytes);
      copy->bytes += bytes.size();
    });
  }
  row = state_db::ExecTable(context.store).get(row.id);
  if (row.state != state_db::ExecState::running) return std::nullopt;  // it ended meanwhile
  row.state = row.outcome.state = state_db::ExecState::interrupted;
  row.outcome.category = state_db::ExecCategory::lost;
  row.outcome.error = "it was still running when it was exported";
  row.outcome.ended_wall_ms = context.store.clock().wall_ms();
  row.outcome.output_bytes = copied.output_bytes;
  row.outcome.omitted_bytes = copied.dropped_bytes;
  return copy;
}

// Spools all rows of its commands, oldest first, and collects their journals.
SpooledFile spool_execs(Context& context, base::WorkspaceId id, const std::string& spool,
                        ArchiveContents& contents) {
  SpooledFile file{ArchiveStore::spool(spool), 0};
  auto& journals = contents.journals;
  journals.path = [&options = context.options, id](base::ExecId exec) {
    return journal_directory(options, id, exec) + "/output";
  };
  base::ExecId after;
  for (;;) {
    const auto rows = state_db::ExecTable(context.store).list_after(id, after, kExecsAtOnce);
    if (rows.empty()) return file;
    std::string lines;
    for (auto row : rows) {
      const std::string path = journals.path(row.id);
      std::optional<SpooledFile> copy;
      if (row.state == state_db::ExecState::running) copy = cut_short(context, row, path, spool);
      lines += write_exec_line(row);
      if (copy || base::path_exists(path)) journals.of.push_back(row.id);
      if (copy) journals.copies.emplace(row.id, *std::move(copy));
    }
    base::write_all(file.fd.get(), lines);
    file.bytes += lines.size();
    after = rows.back().id;
  }
}

ArchivedLayers collect(Context& context, LayerId top, std::vector<state_db::SnapshotRow> snapshots,
                       base::SnapshotId stands_on) {
  ArchivedLayers archived;
  archived.snapshots = std::move(snapshots);
  archived.stands_on = stands_on;
  state_db::LayerTable table(context.store);
  struct Place {
    LayerRow row;
    size_t depth = 0;  // number of layers below it
  };
  std::map<LayerId, Place> places;
  const auto add = [&](LayerId layer) {
    const auto chain = table.chain(layer);
    for (size_t n = 0; n < chain.size(); ++n)
      places[chain[n].id] = {chain[n], chain.size() - 1 - n};
  };
  add(top);
  for (const auto& snapshot : archived.snapshots) {
    if (!places.contains(snapshot.layer)) add(snapshot.layer);
  }
  std::vector<Place> ordered;
  for (const auto& [id, place] : places) ordered.push_back(place);
  std::stable_sort(ordered.begin(), ordered.end(), [top](const Place& one, const Place& other) {
    if ((one.row.id == top) != (other.row.id == top)) return one.row.id == top;
    return one.depth > other.depth;
  });
  for (auto& place : ordered) archived.layers.push_back(std::move(place.row));
  return archived;
}

// The layer `top` becomes writable, so its snapshots cannot be in the same archive.
std::vector<state_db::SnapshotRow> kept_of(Context& context, base::WorkspaceId workspace,
                                           WithSnapshots with, LayerId top) {
  if (with == WithSnapshots::no) return {};
  auto kept = state_db::SnapshotTable(context.store).kept(workspace);
  std::erase_if(kept, [top](const auto& snapshot) { return snapshot.layer == top; });
  return kept;
}

// Leaves out the snapshots of exports and links their children to their parents, like a drop.
void leave_out_exports(std::vector<state_db::SnapshotRow>& kept, base::SnapshotId& stands_on) {
  std::map<base::SnapshotId, base::SnapshotId> below;
  for (const auto& snapshot : kept) {
    if (snapshot.cause == state_db::SnapshotCause::export_) below[snapshot.id] = snapshot.parent;
  }
  const auto go_below = [&below](base::SnapshotId& id) {
    for (auto found = below.find(id); found != below.end(); found = below.find(id))
      id = found->second;
  };
  std::erase_if(kept, [&below](const auto& snapshot) { return below.contains(snapshot.id); });
  for (auto& snapshot : kept) go_below(snapshot.parent);
  go_below(stands_on);
}

template <typename Rows, typename Id>
std::optional<size_t> place_of(const Rows& rows, Id id) {
  const auto found =
      std::find_if(rows.begin(), rows.end(), [id](const auto& row) { return row.id == id; });
  if (found == rows.end()) return std::nullopt;
  return static_cast<size_t>(found - rows.begin());
}

// Fills in layers, snapshots and the current position.
void describe(const ArchivedLayers& archived, Manifest& manifest) {
  for (const auto& layer : archived.layers)
    manifest.layers.push_back({layer.id.str(), place_of(archived.layers, layer.parent)});
  for (const auto& row : archived.snapshots) {
    ManifestSnapshot snapshot;
    snapshot.id = row.id.str();
    const auto parent = place_of(archived.snapshots, row.parent);
    // A restored one may have a newer parent, which comes later in the list.
    if (parent && *parent < manifest.snapshots.size()) snapshot.parent = parent;
    snapshot.layer = place_of(archived.layers, row.layer).value();
    snapshot.name = row.name;
    snapshot.external_id = row.external_id;
    snapshot.cause = row.cause;
    snapshot.exec = row.exec;
    snapshot.created_wall_ms = row.created_wall_ms;
    snapshot.moved_commit = row.moved_commit;
    manifest.snapshots.push_back(std::move(snapshot));
  }
  manifest.stands_on = place_of(archived.snapshots, archived.stands_on);
}

std::vector<packs::LayerPart> parts_of(Context& context, const ArchivedLayers& archived,
                                       const repo_cache::BaseTreePlaces& base) {
  std::vector<packs::LayerPart> parts;
  for (size_t n = 0; n < archived.layers.size(); ++n) {
    for (const std::string part_name : kLayerParts) {
      packs::LayerPart part;
      part.prefix = part_prefix(n, part_name);
      part.disk_first_id = context.options.disk_first_id;
      // Use the chain as read above: a merge may change it meanwhile, with the same contents.
      for (std::optional<size_t> at = n; at;
           at = place_of(archived.layers, archived.layers[*at].parent)) {
        const auto layer = archived.layers[*at].id;
        part.uppers.push_back(context.storage.layer_path(layer) + "/" + part_name + "/upper");
      }
      if (part_name == kLayerParts[0]) {
        part.base = base.tree;
        part.uppers.insert(part.uppers.end(), base.deltas.begin(), base.deltas.end());
      }
      if (part_name == kLayerParts[1])
        part.base =
            layers::ensure_home_skeleton(context.options.store, context.options.disk_first_id);
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

}  // namespace

ArchivedLayers archived_layers(Context& context, const state_db::WorkspaceRow& row,
                               WithSnapshots with) {
  const state_db::ReadTransaction moment(context.store);
  return collect(context, row.layer, kept_of(context, row.id, with, row.layer), row.stands_on);
}

ArchivedLayers archived_layers(Context& context, const state_db::SnapshotRow& snapshot,
                               WithSnapshots with) {
  const state_db::ReadTransaction moment(context.store);
  auto kept = kept_of(context, snapshot.workspace, with, snapshot.layer);
  base::SnapshotId stands_on = snapshot.parent;
  leave_out_exports(kept, stands_on);
  return collect(context, snapshot.layer, std::move(kept), stands_on);
}

ManifestImage identify_image(Context& context, const state_db::WorkspaceRow& row) {
  auto* backend = context.backends.find(row.backend);
  if (row.image == "host" || !backend) return {};
  try {
    const auto found = backend->find_image(row.image);
    return found ? ManifestImage{found->id, found->source} : ManifestImage{};
  } catch (const Error& error) {
    base::log(base::LogLevel::warning, "archive.image_unknown",
              {{"ws", row.id}, {"image", row.image}, {"error", error.message()}});
    return {};
  }
}

ArchiveContents contents_of(Context& context, Repositories& repositories,
                            const state_db::WorkspaceRow& row, const ArchivedLayers& archived,
                            const std::string& spool) {
  ArchiveContents contents;
  Manifest& manifest = contents.manifest;
  manifest.store = context.store.store_id();
  manifest.made_wall_ms = context.store.clock().wall_ms();
  manifest.workspace = row;
  manifest.repository = state_db::RepositoryTable(context.store).get(row.repository);
  manifest.image = identify_image(context, row);
  describe(archived, manifest);
  manifest.forked_from = row.fork_of;
  if (row.forked_from) {
    const auto origin = state_db::SnapshotTable(context.store).get(row.forked_from);
    manifest.forked_from = {manifest.store, origin.workspace, origin.id,
                            state_db::WorkspaceTable(context.store).get(origin.workspace).name};
  }
  const std::string repo = repo_directory(row.repository);
  const auto base = repositories.ensure_base_tree(row.repository, row.base_commit, {});
  // Upstream's current refs are not enough: an agent may have merged commits that only exist here.
  contents.refs = context.repos.all_refs(repo);
  contents.pack.fd = ArchiveStore::spool(spool);
  context.repos.export_pack(repo, row.base_commit, contents.pack.fd.get(), kPackDeadline);
  struct stat status;
  base::check(fstat(contents.pack.fd.get(), &status), "inspect the pack");
  contents.pack.bytes = static_cast<uint64_t>(status.st_size);
  contents.execs = spool_execs(context, row.id, spool, contents);
  contents.parts = parts_of(context, archived, base);
  contents.base_in_use = base.in_use;
  return contents;
}

}  // namespace moorage::workspace
