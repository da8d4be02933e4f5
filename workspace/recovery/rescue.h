// Lists and saves the contents of a store whose database is unreadable: workspaces by their notes
// (workspace/chain/workspace_note.h), and layers that no note names. It changes and mounts nothing.
// Sandboxes may still run: an export may or may not include their writes meanwhile.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/byte_pipe.h"
#include "base/thread_pool.h"
#include "packs/layer_to_tar.h"
#include "workspace/chain/workspace_note.h"

namespace moorage::workspace {

struct RescuedWorkspace {
  std::string id;                          // "ws_3", or "ly_7" for a layer that no note names
  std::optional<About> about;              // empty: its note is missing or torn
  std::vector<base::LayerId> layers;       // present on disk, newest first
  std::vector<base::LayerId> lost_layers;  // named in its note but missing
  std::string archive;                     // a file with everything, in place of its layers
  std::optional<uint64_t> bytes;           // empty: there was no time to measure
};

struct RescueOptions {
  std::string store;
  std::string archive_directory;
  uint32_t disk_first_id = 1'900'000'000;
};

class Rescue {
 public:
  explicit Rescue(RescueOptions options)
      : options_(std::move(options)), exports_(kExports, kWaitingExports) {}

  std::vector<RescuedWorkspace> list();
  size_t count() { return look().size(); }
  // By id or by unique name. not_found; conflict if several have the name.
  RescuedWorkspace find(const std::string& name);
  // Everything on disk, as a tar in zstd that plain tar reads: about.json, journal/<ex>/..., and
  // layers/<ly>/{tree,home,system}/... with the changes there. Unreadable entries, and those that
  // an archive cannot hold, are left out and named in missing.txt. For an archived workspace it is
  // its archive, unchanged: for `import` on a healthy host.
  std::shared_ptr<base::BytePipe> begin_export(const std::string& name);

 private:
  std::vector<RescuedWorkspace> look();
  std::string archive_of(const About& about) const;
  void measure(RescuedWorkspace& found, std::chrono::steady_clock::time_point until);
  void write(const RescuedWorkspace& found, base::BytePipe& pipe);
  std::vector<packs::LayerPart> parts_of(const RescuedWorkspace& found,
                                         const packs::PassOver& pass_over) const;

  static constexpr size_t kExports = 4;
  static constexpr size_t kWaitingExports = 64;
  RescueOptions options_;
  base::ThreadPool exports_;
};

}  // namespace moorage::workspace
