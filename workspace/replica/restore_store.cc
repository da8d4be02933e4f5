#include "workspace/replica/restore_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/atomic_file.h"
#include "base/os/files.h"
#include "base/os/open_beneath.h"
#include "packs/delta_pack.h"
#include "packs/tree_restorer.h"
#include "repo_cache/repo_cache.h"
#include "state_db/store_lock.h"
#include "state_db/tables/database_copy.h"
#include "workspace/archive/file.h"
#include "workspace/replica/directory.h"
#include "workspace/replica/published_copy.h"

namespace moorage::workspace {
namespace {

constexpr uint32_t kLayerIds = 65536 + 1;  // of one sandbox, and the mounter's (layers/overlay.h)
constexpr const char* kUnnamed = "/state.db.restoring";

class Restore {
 public:
  explicit Restore(const RestoreOptions& options)
      : options_(options),
        lock_(state_db::lock_store(options.store)),
        replica_(ReplicaDirectory::for_reading(options.replica)) {}

  RestoreReport run() {
    take_database();
    const auto needs = database_->needs();
    report_.store_id = needs.store_id;
    report_.wall_ms = manifest_.wall_ms;
    report_.workspaces = needs.histories.size();
    tell("as of " + base::format_utc(manifest_.wall_ms) + ", store " + needs.store_id);
    make_directories();
    layers(needs.layers);
    for (const auto& history : needs.histories) this->history(history.workspace);
    for (const auto repository : needs.repositories) mirror(repository);
    home();
    for (const auto& archive : needs.archives) this->archive(archive);
    finish();
    return report_;
  }

 private:
  void tell(const std::string& line) const {
    if (options_.tell) options_.tell(line);
  }
  void lose(const std::string& sentence) {
    report_.lost.push_back(sentence);
    tell("LOST " + sentence);
  }

  // Takes the newest sound copy. An unreadable one is skipped with a warning.
  void take_database() {
    std::vector<uint64_t> numbers;
    for (const auto& name : replica_.names(ReplicaPart::state)) {
      if (const auto number = copy_number(name)) numbers.push_back(*number);
    }
    std::sort(numbers.rbegin(), numbers.rend());
    for (const uint64_t number : numbers) {
      try {
        take_copy(number);
        return;
      } catch (const Error& error) {
        if (error.code() == Code::unsupported || error.code() == Code::resource_exhausted) throw;
        database_.reset();
        const std::string text = copy_name(number) + " is skipped: " + error.message();
        report_.warnings.push_back(text);
        tell("WARNING " + text);
      }
    }
    throw Error(Code::corrupted, options_.replica + " has no intact copy of the database",
                "check that it is a store's replica.directory and that its first update finished");
  }

  void take_copy(uint64_t number) {
    const std::string path = options_.store + kUnnamed;
    const Fd from = replica_.open(ReplicaPart::state, copy_name(number));
    {
      const Fd to = base::open_file(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
      manifest_ =
          read_copy(from, [&](std::string_view bytes) { base::write_all(to.get(), bytes); });
    }
    if (manifest_.owner != replica_.owner())
      throw Error(Code::corrupted, "it belongs to a different store than the directory");
    if (manifest_.first_id != options_.disk_first_id) {
      throw Error(Code::unsupported,
                  "that store's ids on disk begin at " + std::to_string(manifest_.first_id),
                  "set ids.disk_first_id: " + std::to_string(manifest_.first_id));
    }
    database_ = std::make_unique<state_db::CopiedDatabase>(path);
  }

  void make_directories() const {
    for (const char* name : {"/layers", "/workspaces", "/repos"})
      base::make_directories(options_.store + name);
    if (options_.archive_directory.starts_with(options_.store + "/"))  // otherwise it must exist
      base::make_directories(options_.archive_directory);
    base::make_directories(options_.store + "/images/home", 0755);
  }

  // Verifies each pack before creating anything from it.
  uint64_t bring(const std::string& name, const packs::TreePlaces& places) const {
    const auto found = manifest_.series.find(name);
    if (found == manifest_.series.end()) throw Error(Code::not_found, "it is not in the copy");
    packs::TreeRestorer tree(places);
    for (uint64_t number = found->second.first; number <= found->second.last; ++number) {
      const packs::PackName pack{name, number, number == found->second.first};
      try {
        const packs::PackReader reader(replica_.open(ReplicaPart::packs, pack.str()));
        reader.verify();
        reader.read_changes(tree);
      } catch (Error& error) {
        throw error.add_context(pack.str());
      }
    }
    tree.finish();
    return tree.entries();
  }

  packs::TreePlaces layer_places(base::LayerId layer) const {
    packs::TreePlaces places;
    for (const std::string part : kLayerParts)
      places.roots[part] = options_.storage->layer_path(layer) + "/" + part + "/upper";
    places.first_id = options_.disk_first_id;
    places.ids = kLayerIds;
    return places;
  }

  void layers(const std::vector<state_db::NeededLayer>& needed) {
    std::map<base::LayerId, std::string> lost;
    std::vector<base::LayerId> wanted;
    for (const auto& layer : needed) {
      if (manifest_.series.contains(layer.layer.str())) {
        options_.storage->make_layer(layer.layer);
        wanted.push_back(layer.layer);
      } else if (!layer.may_lack) {
        lost[layer.layer] = "it is not in the copy";
      }
    }
    bring_layers(wanted, lost);
    report_.layers = wanted.size();
    for (const auto& [layer, why] : lost) {
      std::string who;
      for (const auto& name : database_->names_on(layer)) who += (who.empty() ? "" : ", ") + name;
      const std::string where = set_aside(layer);
      lose(layer.str() + ": " + why + where + "; affected: " + (who.empty() ? "nobody" : who));
      database_->mark_lost(layer, layer.str() + " was not restored from the copy: " + why + where,
                           base::system_clock().wall_ms());
    }
  }

  void bring_layers(const std::vector<base::LayerId>& wanted,
                    std::map<base::LayerId, std::string>& lost) {
    std::atomic<size_t> next{0};
    std::mutex mutex;
    std::optional<Error> fatal;
    const auto work = [&] {
      for (size_t at = next++; at < wanted.size(); at = next++) {
        std::string why;
        uint64_t entries = 0;
        std::optional<Error> trouble;
        try {
          entries = bring(wanted[at].str(), layer_places(wanted[at]));
        } catch (const Error& error) {
          why = error.message();
          if (error.code() == Code::resource_exhausted) trouble = error;
        } catch (const std::exception& error) {
          why = error.what();
        }
        const std::lock_guard lock(mutex);
        if (!why.empty()) lost[wanted[at]] = why;
        if (trouble) fatal = trouble;
        report_.entries += entries;
        if ((at + 1) % 50 == 0 || at + 1 == wanted.size())
          tell("layers " + std::to_string(at + 1) + " of " + std::to_string(wanted.size()) + ", " +
               std::to_string(report_.entries) + " files");
        if (fatal) next = wanted.size();
      }
    };
    std::vector<std::thread> threads;
    for (unsigned n = 0; n < std::max(1U, options_.threads); ++n) threads.emplace_back(work);
    for (auto& thread : threads) thread.join();
    if (fatal) throw Error(*fatal);  // a full disk is not a loss
  }

  // The part of a layer before the damage may be all that remains: keep it, but elsewhere, because
  // in its place nothing would show that it is incomplete.
  std::string set_aside(base::LayerId layer) const {
    const std::string path = options_.storage->layer_path(layer);
    if (!base::path_exists(path)) return {};
    bool any = false;
    for (const auto& [part, upper] : layer_places(layer).roots)
      any = any || !base::directory_is_empty(upper);
    if (!any) {
      options_.storage->remove_layer(layer);
      return {};
    }
    base::make_directories(options_.store + "/lost");
    std::string time = base::format_utc(base::system_clock().wall_ms());
    std::erase(time, ':');
    const std::string to = options_.store + "/lost/" + layer.str() + "-" + time;
    base::rename_into_place(path, to);
    return " (the restored part is in " + to + ")";
  }

  void history(base::WorkspaceId workspace) {
    const std::string name = workspace.str();
    if (!manifest_.series.contains(name)) return;  // nothing ever ran in it
    const std::string path = options_.store + "/workspaces/" + name;
    base::make_directories(path);
    guarded("the output of commands of " + database_->name_of(workspace), [&] {
      report_.entries += bring(name, {{{"", path}}, 0, 0, {}});
    });
  }

  // Upstream also has a mirror's contents, except imports and history that was rewritten there.
  void mirror(base::RepoId repository) {
    const std::string name = repository.str();
    if (!manifest_.series.contains(name)) return;
    guarded("the mirror of " + name + " (its next use fetches it from upstream, if it has one)",
            [&] {
              try {
                options_.repos->make_empty(name);
                const packs::TreePlaces places{
                    {{"", options_.repos->mirror_directory(name)}}, 0, 0, is_mirror_path};
                report_.entries += bring(name, places);
                options_.repos->tips(name);  // each is there
              } catch (const Error&) {
                base::remove_tree(options_.repos->directory(name));
                throw;
              }
            });
  }

  void home() {
    if (!manifest_.series.contains("home")) return;
    guarded("the skeleton of home directories (it is recreated)", [&] {
      const packs::TreePlaces places{
          {{"", options_.store + "/images/home"}}, options_.disk_first_id, kLayerIds, {}};
      bring("home", places);
    });
  }

  // An archive that survived elsewhere stays; another file under its name is replaced.
  void archive(const state_db::NeededArchive& archive) {
    guarded("the archive of " + database_->name_of(archive.workspace), [&] {
      const std::string path = options_.archive_directory + "/" + archive.file;
      if (base::path_exists(path) && sha256_of(base::open_file(path, O_RDONLY | O_NOFOLLOW),
                                               archive.bytes, {}) == archive.sha256)
        return;
      const Fd from = replica_.open(ReplicaPart::archives, archive.file);
      const std::string suffix = ".tmp";  // the next start removes a leftover
      unlink((path + suffix).c_str());
      base::AtomicFile to(path, {.suffix = suffix, .elsewhere = true});
      const std::string sha256 =
          sha256_of(from, archive.bytes, [&](std::string_view piece) { to.write(piece); });
      if (sha256 != archive.sha256)
        throw Error(Code::corrupted, "it differs from the archived file");
      to.commit_durable();
    });
  }

  template <typename Work>
  void guarded(const std::string& what, const Work& work) {
    try {
      work();
    } catch (const Error& error) {
      if (error.code() == Code::resource_exhausted) throw;
      lose(what + ": " + error.message());
    }
  }

  // The name comes last: before that, there is no store.
  void finish() {
    database_->settle();
    database_.reset();
    const std::string path = options_.store + kUnnamed;
    base::sync_file_system(options_.store);
    base::rename_into_place(path, options_.store + "/state.db");
    base::sync_directory(options_.store);
  }

  const RestoreOptions& options_;
  const Fd lock_;
  const ReplicaDirectory replica_;
  ReplicaManifest manifest_;
  std::unique_ptr<state_db::CopiedDatabase> database_;
  RestoreReport report_;
};

}  // namespace

void require_empty_store(const std::string& store) {
  base::make_directories(store);
  for (const auto& name : base::list_directory(store)) {
    const bool holds_nothing = std::filesystem::is_directory(store + "/" + name) &&
                               std::filesystem::is_empty(store + "/" + name);
    // A restore that was refused leaves directories without contents.
    if (name == "lost+found" || name == "state.db.lock" || holds_nothing) continue;
    throw Error(Code::invalid_argument, store + " is not empty: it contains " + name,
                "choose an empty directory with --store, or move its contents away");
  }
}

RestoreReport restore_store(const RestoreOptions& options) { return Restore(options).run(); }

}  // namespace moorage::workspace
