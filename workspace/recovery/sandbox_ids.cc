#include "workspace/recovery/sandbox_ids.h"

#include <sys/stat.h>

#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>

#include "base/error.h"
#include "base/os/files.h"
#include "base/os/process.h"
#include "state_db/store.h"
#include "state_db/tables/facts.h"
#include "state_db/tables/sandboxes.h"

namespace moorage::workspace {
namespace {

constexpr const char* kDiskIds = "disk_first_id";

// From its user namespace; without one, from the warden's command line.
std::optional<uint32_t> first_id_of_process(const base::ProcessIdentity& init) {
  constexpr std::string_view kOption = "--user-base";
  const std::string proc = "/proc/" + std::to_string(init.pid);
  const auto map = base::read_file_if_exists(proc + "/uid_map");
  const auto words = base::read_file_if_exists(proc + "/cmdline");
  if (!map || !words || !base::process_alive(init)) return std::nullopt;
  std::istringstream line(*map);
  uint32_t inside = 0;
  uint32_t outside = 0;
  if (line >> inside >> outside && inside == 0 && outside != 0) return outside;
  const size_t at = words->find(kOption);
  if (at == std::string::npos || at + kOption.size() + 1 >= words->size()) return std::nullopt;
  return static_cast<uint32_t>(std::strtoul(words->c_str() + at + kOption.size() + 1, nullptr, 10));
}

// The owner of the existing layers (layers/overlay.cc); all have the same ids.
std::optional<uint32_t> first_id_on_disk(const std::string& store) {
  const std::string layers = store + "/layers";
  for (const std::string& layer : base::list_directory_if_exists(layers)) {
    struct stat status {};
    if (!layer.starts_with("ly_")) continue;
    if (stat((layers + "/" + layer + "/system/upper").c_str(), &status) == 0) return status.st_uid;
  }
  return std::nullopt;
}

}  // namespace

void record_ids(Context& context) {
  state_db::SandboxTable sandboxes(context.store);
  for (const auto& row : sandboxes.not_destroyed()) {
    if (row.first_host_id != 0 || !row.slot) continue;
    std::optional<uint32_t> first;
    if (row.boot_id == base::boot_id()) first = first_id_of_process(row.init);
    sandboxes.set_first_host_id(row.id, first.value_or(context.options.first_host_id(*row.slot)));
  }
}

void require_disk_ids(state_db::Store& store, const Options& options) {
  const std::string wanted = std::to_string(options.disk_first_id);
  auto known = state_db::find_fact(store, kDiskIds);
  if (!known) {
    const auto found = first_id_on_disk(options.store);
    known = std::to_string(found.value_or(options.disk_first_id));
    state_db::set_fact(store, kDiskIds, *known);
  }
  if (*known == wanted) return;
  throw Error(Code::conflict,
              "the files of this store belong to ids from " + *known +
                  ", but ids.disk_first_id is " + wanted,
              "set ids.disk_first_id: " + *known +
                  "; to change the ids, archive or export the workspaces and import them into a "
                  "new store");
}

}  // namespace moorage::workspace
