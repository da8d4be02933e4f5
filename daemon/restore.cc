#include "daemon/restore.h"

#include <cstdio>

#include "base/clock.h"
#include "base/error.h"
#include "repo_cache/repo_cache.h"
#include "workspace/replica/restore_store.h"

namespace moorage::daemon {

int restore(const Settings& settings, const std::string& replica) {
  const std::string& store = settings.store();
  const auto image = layers::StoreImage::open(settings.image);
  workspace::require_empty_store(store);
  repo_cache::RepoCache repos(settings.services.repos);
  const auto storage = layers::make_overlay_storage(settings.services.storage);
  const auto tell = [](const std::string& line) {
    std::printf("%s\n", base::escape_for_message(line).c_str());
    std::fflush(stdout);
  };
  const auto report =
      workspace::restore_store({.replica = replica,
                                .store = store,
                                .archive_directory = settings.services.workspace.archive_directory,
                                .disk_first_id = settings.services.workspace.disk_first_id,
                                .repos = &repos,
                                .storage = storage.get(),
                                .tell = tell});
  tell("restored " + std::to_string(report.workspaces) + " workspaces, " +
       std::to_string(report.layers) + " layers, " + std::to_string(report.entries) +
       " files into " + store + ", as of " + base::format_utc(report.wall_ms));
  if (report.lost.empty()) tell("the store is complete; start mooraged on it");
  for (const auto& sentence : report.lost) tell("missing: " + sentence);
  return report.lost.empty() ? 0 : 1;
}

}  // namespace moorage::daemon
