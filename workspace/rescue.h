// What can be told and saved of a store whose database cannot be read: the workspaces by their
// notes (about.h), and layers that no note names. Nothing is changed and nothing is mounted.
// Sandboxes may still run: what they write meanwhile may be in an export or not.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "workspace/about.h"
#include "workspace/byte_pipe.h"
#include "workspace/layer_archiver.h"

namespace moorage::workspace {

struct RescuedWorkspace {
  std::string id;                          // "ws_3", or "ly_7" for a layer that no note names
  std::optional<About> about;              // nothing: its note is missing or torn
  std::vector<base::LayerId> layers;       // that are on the disk, newest first
  std::vector<base::LayerId> lost_layers;  // that its note names, and the disk has not
  std::string archive;                     // a file that has all of it, in place of its layers
  std::optional<uint64_t> bytes;           // nothing: there was no time to add them up
};

struct RescueOptions {
  std::string store;
  std::string archive_directory;
  uint32_t disk_first_id = 1'900'000'000;
};

class Rescue {
 public:
  explicit Rescue(RescueOptions options);
  ~Rescue();

  std::vector<RescuedWorkspace> list();
  size_t count() { return look().size(); }
  // By id, or by a name that is only one's. not_found; conflict where a name is several's.
  RescuedWorkspace find(const std::string& name);
  // All that the disk has of it, as a tar in zstd that plain tar reads: about.json,
  // journal/<ex>/..., and layers/<ly>/{tree,home,system}/... with what was changed there. What
  // cannot be read, or be in an archive, is left out and named in missing.txt. Of an archived one
  // its archive, as it is: for `import` on a sound host.
  std::shared_ptr<BytePipe> begin_export(const std::string& name);

 private:
  std::vector<RescuedWorkspace> look();
  std::string archive_of(const About& about) const;
  void measure(RescuedWorkspace& found, std::chrono::steady_clock::time_point until);
  void write(const RescuedWorkspace& found, BytePipe& pipe);
  std::vector<LayerPart> parts_of(const RescuedWorkspace& found, const PassOver& pass_over) const;

  RescueOptions options_;
  base::ThreadPool exports_;
};

}  // namespace moorage::workspace
