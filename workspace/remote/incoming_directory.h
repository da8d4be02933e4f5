// incoming/ of a remote sandbox (base/wire/link_config.h): N.pack is complete and waits; N.applied
// is in the workspace's files, which may not be on the disk yet. `refused` says why nothing of this
// machine is applied any more. Only moorage-link adds packs; only one thread changes the rest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/os/fd.h"

namespace moorage::workspace {

inline constexpr size_t kMostRefused = 8;  // packs kept of a workspace, and their bytes
inline constexpr uint64_t kMostRefusedBytes = 256 << 20;

class IncomingDirectory {
 public:
  explicit IncomingDirectory(std::string sandbox_directory);

  std::vector<uint64_t> packs() const;  // in order
  struct Applied {
    uint64_t number = 0;
    uint64_t inode = 0;
  };
  std::vector<Applied> applied() const;
  base::Fd open(uint64_t number) const;
  void set_applied(uint64_t number) const;
  void wait_again() const;  // all that are applied become packs: a power cut may have undone them
  // Their files must be on the disk. Skips one that was replaced since the list was made.
  void remove(const std::vector<Applied>& applied) const;
  std::optional<std::string> refused() const;  // why
  void set_refused(const std::string& why) const;
  // Moves a pack to `directory`, which keeps the newest. Returns false if it is too large to keep.
  bool keep(uint64_t number, const std::string& directory, const std::string& name) const;

 private:
  std::string pack_path(uint64_t number) const;
  std::string applied_path(uint64_t number) const;
  std::string path_;
};

}  // namespace moorage::workspace
