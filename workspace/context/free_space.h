// Free space on the store's file system, and who may still use it. Below `min`, operations that
// need space are refused: commands, workspaces, clones, uploads. Operations that free space
// continue: removing files and workspaces, stop, rm as a command, and commands that declare that
// they free space. Below half of it the disk guard (workspace/upkeep/disk_guard.h) ends writers, so
// that the rest stays for the database and the journals. A check is one statfs, done each time.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/os/files.h"
#include "workspace/context/context.h"

namespace moorage::workspace {

enum class RoomLevel { enough, low, short_of };  // by severity
inline constexpr std::array<std::string_view, 3> kRoomLevelNames{"enough", "low", "short"};

struct DiskRoom {
  base::Space space;
  uint64_t min_free_bytes = 0;
  uint64_t min_free_inodes = 0;  // 0: the file system has no inode limit

  RoomLevel level() const;
  std::string text() const;  // "12M and 4711 files free, 1G and 10000 files reserved"
};

// The reserve is the setting; if 0, the lesser of 1 GiB and 2 % of the disk; 20,000 inodes or 2 %.
DiskRoom look_at_room(const Options& options);
DiskRoom room_of(const base::Space& space, const Options& options);

// Throws resource_exhausted unless there is room for `bytes` more. `what` starts the message:
// "cannot start a command".
void require_room(const Options& options, std::string_view what, uint64_t bytes = 0);

}  // namespace moorage::workspace
