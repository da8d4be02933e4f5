#include "workspace/replica/writer.h"

#include <fcntl.h>

#include <algorithm>

#include "backends/registry.h"
#include "base/crash_point.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "layers/change_time.h"
#include "layers/home_skeleton.h"
#include "layers/mapped_files.h"
#include "repo_cache/repo_cache.h"
#include "state_db/store.h"
#include "state_db/tables/archives.h"
#include "state_db/tables/integrity.h"
#include "state_db/tables/layers.h"
#include "state_db/tables/sandboxes.h"
#include "state_db/tables/workspaces.h"
#include "workspace/archive/store.h"
#include "workspace/context/try_step.h"

namespace moorage::workspace {
namespace {

using base::LogLevel;
using state_db::WorkspaceState;
using std::chrono::steady_clock;

MOORAGE_CRASH_POINT(after_pack, "replica.after_pack");
MOORAGE_CRASH_POINT(after_packs, "replica.after_packs");
MOORAGE_CRASH_POINT(after_copy, "replica.after_copy");
MOORAGE_CRASH_POINT(after_old_copy, "replica.after_old_copy");

constexpr size_t kKeptCopies = 3;
constexpr int kMostTries = 5;
// Beyond this, send a tree as a whole again: a restore then reads at most about twice its size.
constexpr uint64_t kSpareBytes = 16 << 20;
constexpr uint64_t kMostPacks = 1024;
// Wait this long before publishing removals: by then it shows whether someone is deleting the whole
// store.
constexpr std::chrono::milliseconds kDoubt{1'000};
// A suddenly missing layer stops all copying for this long, for the same reason. After that it
// counts as lost, and the copy still has it.
constexpr std::chrono::seconds kMissingLayerGrace{60};
constexpr std::string_view kFrozenMark = "frozen";

bool is_whole_layer(const std::string& path) {
  return std::all_of(std::begin(kLayerParts), std::end(kLayerParts), [&](const char* part) {
    return base::path_exists(path + "/" + part + "/upper");
  });
}

bool is_history_path(std::string_view path) {
  return path != "seal" && path != "about.json" && !path.starts_with(".");
}

bool is_journal(std::string_view path) {
  return path.starts_with("journal/") && path.ends_with("/output");
}

}  // namespace

ReplicaWriter::~ReplicaWriter() {
  if (seen_) seen_->abandon();
}

ReplicaRound ReplicaWriter::round() {
  round_ = {};
  removals_ = 0;
  for (int tries = 0; tries < kMostTries; ++tries) {
    check_stopping_();
    const int64_t boot_ms = context_.store.clock().boot_ms();
    const int64_t wall_ms = context_.store.clock().wall_ms();
    const state_db::DatabaseCopy copy(context_.options.store);
    open(copy.needs());
    require_store(copy.needs());
    manifest_ = {directory_->owner(), wall_ms, context_.options.disk_first_id, {}, {}};
    round_.sealed.clear();
    round_.notes.clear();
    if (bring(copy.needs()) == Followed::stale) continue;
    after_packs.pass();
    if (removals_ > 0) pause_(kDoubt);
    check_stopping_();
    require_store(copy.needs());
    publish(copy);
    prune();
    round_.boot_ms = boot_ms;
    round_.wall_ms = wall_ms;
    return round_;
  }
  throw Error(Code::unavailable, "workspaces change faster than they can be copied");
}

// The records are then read from the packs again.
void ReplicaWriter::open_seen() {
  if (seen_ && !seen_->broken()) return;
  for (auto& [name, tree] : trees_) tree.record.reset();
  seen_.reset();
  seen_ = std::make_unique<state_db::SeenDatabase>(context_.options.store);
}

void ReplicaWriter::open(const state_db::Needs& needs) {
  open_seen();
  if (directory_ && directory_->is_still_there()) return;
  trees_.clear();
  archives_.clear();
  kept_.clear();
  damaged_.clear();
  published_.clear();
  directory_.reset();  // and its lock
  std::vector<std::string> store{context_.options.store};
  if (!rules_.store_image.empty()) store.push_back(rules_.store_image);
  directory_ = std::make_unique<ReplicaDirectory>(ReplicaDirectory::for_writing(
      {rules_.directory, store, rules_.same_disk, needs.store_id + " " + needs.epoch}));
  load_copies();
}

void ReplicaWriter::load_copies() {
  for (const auto& name : directory_->names(ReplicaPart::state)) {
    const auto number = copy_number(name);
    if (!number) continue;
    next_number_ = std::max(next_number_, *number + 1);
    try {
      kept_.push_back({*number, read_copy(directory_->open(ReplicaPart::state, name), {})});
    } catch (const Error& error) {
      if (error.code() != Code::corrupted) throw;
      damaged_.push_back(*number);
      base::log(LogLevel::warning, "replica.damaged_copy",
                {{"file", name}, {"error", error.message()}});
    }
  }
  for (const auto& name : directory_->names(ReplicaPart::archives)) archives_.insert(name);
  if (!kept_.empty()) {
    for (const auto& [name, series] : kept_.back().manifest.series) trees_[name].series = series;
  }
  prune();
}

// A tree whose list is unreadable is sent as a whole again.
void ReplicaWriter::load_record(const std::string& name, Tree& tree) {
  auto record = std::make_unique<TreeRecord>(*seen_);
  try {
    for (uint64_t number = tree.series.first; number <= tree.series.last; ++number) {
      check_stopping_();
      const packs::PackName pack{name, number, number == tree.series.first};
      packs::PackReader(directory_->open(ReplicaPart::packs, pack.str()))
          .read_list([&](std::string_view part) { record->read(part); });
      record->end_of_list();
    }
    tree.record = std::move(record);
  } catch (const Error& error) {
    if (error.code() != Code::corrupted && error.code() != Code::not_found) throw;
    base::log(LogLevel::warning, "replica.damaged_pack",
              {{"tree", name}, {"error", error.message()}});
  }
}

ReplicaWriter::Followed ReplicaWriter::bring(const state_db::Needs& needs) {
  for (const auto& layer : needs.layers) {
    if (bring_layer(layer) == Followed::stale) return Followed::stale;
  }
  for (const auto& history : needs.histories) {
    if (bring_history(history) == Followed::stale) return Followed::stale;
  }
  for (const auto repository : needs.repositories) bring_mirror(repository);
  bring_home();
  for (const auto& archive : needs.archives) {
    if (bring_archive(archive) == Followed::stale) return Followed::stale;
  }
  return Followed::yes;
}

// According to the rows, which change before a layer is removed.
bool ReplicaWriter::is_needed(const state_db::NeededLayer& layer) const {
  const auto known = state_db::LayerTable(context_.store).find(layer.layer);
  if (!known || known->cold) return false;
  if (!layer.workspace) return true;
  const auto row = state_db::WorkspaceTable(context_.store).find(layer.workspace);
  if (!row || row->purge_wall_ms) return false;
  return row->state == WorkspaceState::ready || row->state == WorkspaceState::archiving ||
         row->state == WorkspaceState::deleting || row->state == WorkspaceState::deleted;
}

ReplicaWriter::Followed ReplicaWriter::bring_layer(const state_db::NeededLayer& layer) {
  const std::string name = layer.layer.str();
  const std::string mark = layer.frozen ? std::string(kFrozenMark) : layer.seal;
  const auto known = trees_.find(name);
  const bool all_there =
      known != trees_.end() && !mark.empty() && known->second.series.mark == mark;
  if (!all_there) {
    // Collection skips locked layers; a layer that it already removed is not needed any more.
    const auto guard = share_if_free(context_, name, "copy");
    if (!guard) return Followed::stale;
    const std::string path = context_.storage.layer_path(layer.layer);
    if (!is_whole_layer(path)) {
      if (layer.may_lack) return Followed::yes;
      // require_store has reported it, and it existed a moment ago.
      if (!missing_.contains(layer.layer)) return Followed::stale;
      round_.notes.push_back(name + " is missing from the store; the copy keeps its last state");
      if (known != trees_.end()) manifest_.series[name] = known->second.series;
      return Followed::yes;
    }
    FollowedTree tree;
    for (const char* part : kLayerParts) tree.roots.push_back({part, path + "/" + part + "/upper"});
    if (const auto sandbox =
            layer.workspace ? context_.live.running_sandbox(layer.workspace) : base::SandboxId{}) {
      // Uses the row, because a reference to the running sandbox would slow down a snapshot now.
      const auto row = state_db::SandboxTable(context_.store).find(sandbox);
      if (row) {
        const auto members = context_.backends.get(row->backend).members(row->name);
        tree.mapped_looked_ns = layers::kernel_time();
        tree.mapped = layers::mapped_inodes(members, path);
      }
    }
    const auto valid = [&] {
      if (!is_needed(layer) || !is_whole_layer(path)) return false;
      // The seal proves that nothing was written since the copy of the database.
      return layer.frozen || mark.empty() ||
             state_db::IntegrityTable(context_.store).get(layer.workspace).seal == mark;
    };
    if (!follow(name, tree, mark, valid)) return Followed::stale;
  }
  if (layer.workspace && !layer.seal.empty()) round_.sealed[layer.workspace] = layer.seal;
  manifest_.series[name] = trees_[name].series;
  return Followed::yes;
}

ReplicaWriter::Followed ReplicaWriter::bring_history(const state_db::NeededHistory& history) {
  const std::string name = history.workspace.str();
  const std::string path = context_.options.store + "/workspaces/" + name;
  const auto known = trees_.find(name);
  const bool all_there =
      known != trees_.end() && !history.stamp.empty() && known->second.series.mark == history.stamp;
  if (!all_there) {
    if (!base::path_exists(path)) return Followed::yes;  // nothing ran in it yet
    const FollowedTree tree{{{"", path}}, is_history_path, is_journal, {}};
    const auto valid = [&] {
      const auto row = state_db::WorkspaceTable(context_.store).find(history.workspace);
      return row && !row->purge_wall_ms;
    };
    if (!follow(name, tree, history.stamp, valid)) return Followed::stale;
  }
  manifest_.series[name] = trees_[name].series;
  return Followed::yes;
}

// The next use of a missing mirror clones it again from upstream.
void ReplicaWriter::bring_mirror(base::RepoId repository) {
  const std::string name = repository.str();
  const std::string path = context_.repos.mirror_directory(repo_directory(repository));
  if (base::path_exists(path)) {
    const FollowedTree tree{{{"", path}}, is_mirror_path, {}, {}};
    const auto valid = [&] { return base::path_exists(path + "/HEAD"); };
    if (!follow(name, tree, {}, valid)) {
      round_.notes.push_back(name + " was replaced during the copy");
    }
  }
  const auto known = trees_.find(name);
  if (known != trees_.end() && known->second.series.last > 0)
    manifest_.series[name] = known->second.series;
}

void ReplicaWriter::bring_home() {
  const FollowedTree tree{
      {{"", layers::ensure_home_skeleton(context_.options.store, context_.options.disk_first_id)}},
      {},
      {},
      {}};
  follow("home", tree, {}, [] { return true; });
  manifest_.series["home"] = trees_["home"].series;
}

ReplicaWriter::Followed ReplicaWriter::bring_archive(const state_db::NeededArchive& archive) {
  if (!archives_.contains(archive.file)) {
    const auto is_current = [&] {
      const auto row = state_db::ArchiveTable(context_.store).find(archive.workspace);
      return row && row->whole &&
             state_db::ArchiveTable(context_.store).file_name(*row) == archive.file;
    };
    try {
      const Fd from = base::open_file(context_.options.archive_directory + "/" + archive.file,
                                      O_RDONLY | O_NOFOLLOW);
      ReplicaFile to(*directory_, ReplicaPart::archives, archive.file);
      const std::string sha256 = sha256_of(from, archive.bytes, [&](std::string_view piece) {
        check_stopping_();
        to.write(piece);
      });
      if (sha256 != archive.sha256)
        throw Error(Code::corrupted, archive.file + " differs from the archived file");
      to.commit();
      archives_.insert(archive.file);
      round_.bytes += to.bytes();
      ++round_.packs;
    } catch (const Error& error) {
      if (error.code() != Code::not_found && error.code() != Code::corrupted) throw;
      if (!is_current()) return Followed::stale;
      round_.notes.push_back(error.message());
      return Followed::yes;
    }
  }
  manifest_.archives.insert(archive.file);
  return Followed::yes;
}

bool ReplicaWriter::follow(const std::string& name, const FollowedTree& followed,
                           const std::string& mark, const std::function<bool()>& is_valid) {
  Tree& tree = trees_[name];
  ReplicaSeries& series = tree.series;
  bool whole = series.last == 0 || series.more_bytes > series.whole_bytes + kSpareBytes ||
               series.last - series.first >= kMostPacks;
  if (!whole && !tree.record) load_record(name, tree);
  if (!tree.record) whole = true;
  if (whole) tree.record = std::make_unique<TreeRecord>(*seen_);
  std::unique_ptr<ReplicaFile> file;
  std::unique_ptr<packs::PackWriter> pack;
  const packs::PackName pack_name{name, series.last + 1, whole};
  const auto made = [&]() -> packs::PackWriter& {
    if (!pack) {
      file = std::make_unique<ReplicaFile>(*directory_, ReplicaPart::packs, pack_name.str());
      pack =
          std::make_unique<packs::PackWriter>([&](std::string_view bytes) { file->write(bytes); });
    }
    return *pack;
  };
  try {
    if (whole) made();
    const FollowResult result =
        TreeFollower(followed, *tree.record, made, check_stopping_).follow();
    if (result.skipped > 0)
      round_.notes.push_back(name + ": " + std::to_string(result.skipped) +
                             " entries are nested too deeply or are devices");
    if (result.cut > 0)
      round_.notes.push_back(name + ": " + std::to_string(result.cut) +
                             " files exceed 4 MiB of attributes; some attributes are not copied");
    if (!is_valid()) {
      tree.record.reset();
      return false;
    }
    if (pack) {
      pack->finish();
      file->commit();
      after_pack.pass();
      removals_ += result.removals;
      series.last = pack_name.number;
      if (whole) series = {series.last, series.last, file->bytes(), 0, {}};
      if (!whole) series.more_bytes += file->bytes();
      round_.bytes += file->bytes();
      ++round_.packs;
    }
  } catch (Error& error) {
    tree.record.reset();
    if (error.code() == Code::not_found && !is_valid()) return false;
    throw error.add_context(name);
  } catch (const std::exception&) {
    tree.record.reset();
    throw;
  }
  series.mark = mark;
  if (!mark.empty()) tree.record.reset();  // the packs have its list if it is needed
  return true;
}

// Requires a complete store. If somebody is deleting the store, the copy must not follow.
void ReplicaWriter::require_store(const state_db::Needs& needs) {
  if (!base::path_exists(context_.options.store + "/state.db"))
    throw Error(Code::unavailable, "copying stopped: state.db is missing from the store",
                "moorage restore-store " + rules_.directory + " restores the copy");
  std::map<base::LayerId, steady_clock::time_point> still;
  const auto now = steady_clock::now();
  for (const auto& layer : needs.layers) {
    if (layer.may_lack || is_whole_layer(context_.storage.layer_path(layer.layer))) continue;
    // A layer that a verb is removing is not a loss; the round notices it.
    if (!is_needed(layer)) continue;
    const auto known = missing_.find(layer.layer);
    still[layer.layer] = known == missing_.end() ? now : known->second;
  }
  missing_ = std::move(still);
  for (const auto& [layer, since] : missing_) {
    if (now - since < kMissingLayerGrace) {
      throw Error(Code::unavailable,
                  layer.str() + " is missing from the store: copying pauses for a minute",
                  "check that nobody is deleting the store; moorage doctor shows what is missing");
    }
  }
}

void ReplicaWriter::publish(const state_db::DatabaseCopy& copy) {
  ReplicaManifest timeless = manifest_;
  timeless.wall_ms = 0;
  base::Sha256 digest;
  digest.add(write_manifest_text(timeless));
  digest.add(copy.bytes());
  if (digest.raw() == published_) return;  // the published copy is the same
  write_copy(*directory_, next_number_, manifest_, copy.bytes());
  after_copy.pass();
  kept_.push_back({next_number_++, manifest_});
  published_ = digest.raw();
}

void ReplicaWriter::prune() {
  std::set<std::string> wanted;
  if (kept_.empty()) return;
  while (kept_.size() > kKeptCopies) kept_.pop_front();
  for (const auto& kept : kept_) wanted.insert(copy_name(kept.number));
  // A person may still want a damaged copy, until there are enough newer ones.
  for (const auto number : damaged_) {
    if (kept_.size() < kKeptCopies || number > kept_.front().number)
      wanted.insert(copy_name(number));
  }
  bool removed = false;
  for (const auto& name : directory_->names(ReplicaPart::state)) {
    if (wanted.contains(name)) continue;
    directory_->remove(ReplicaPart::state, name);
    removed = true;
  }
  // Make these removals durable before removing what only those copies needed.
  if (removed) directory_->sync(ReplicaPart::state);
  after_old_copy.pass();
  for (const auto& name : directory_->names(ReplicaPart::packs)) {
    const auto pack = packs::parse_pack_name(name);
    const bool needed = pack && std::any_of(kept_.begin(), kept_.end(), [&](const Kept& kept) {
                          const auto series = kept.manifest.series.find(pack->series);
                          return series != kept.manifest.series.end() &&
                                 pack->number >= series->second.first &&
                                 pack->number <= series->second.last;
                        });
    if (!needed) directory_->remove(ReplicaPart::packs, name);
  }
  for (const auto& name : directory_->names(ReplicaPart::archives)) {
    const bool needed = std::any_of(kept_.begin(), kept_.end(), [&](const Kept& kept) {
      return kept.manifest.archives.contains(name);
    });
    if (needed) continue;
    directory_->remove(ReplicaPart::archives, name);
    archives_.erase(name);
  }
  std::erase_if(trees_, [&](const auto& tree) {
    return std::none_of(kept_.begin(), kept_.end(), [&](const Kept& kept) {
      return kept.manifest.series.contains(tree.first);
    });
  });
}

}  // namespace moorage::workspace
