// How much room the store's file system has, and who may still take of it. Below `min` nothing that
// takes space begins: commands, workspaces, clones, uploads. What gives space back goes on: removal
// of files and workspaces, stop, rm as a command, and a command that says that it frees space.
// Below half of it the disk guard (disk_guard.h) ends those who write, so that the last part is the
// database's and the journals'. Looking is one statfs: it is done each time, nothing is remembered.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/files.h"
#include "workspace/context.h"

namespace moorage::workspace {

enum class RoomLevel { enough, low, short_of };  // in the order of severity
inline constexpr std::array<std::string_view, 3> kRoomLevelNames{"enough", "low", "short"};

struct DiskRoom {
  base::Space space;
  uint64_t min_free_bytes = 0;
  uint64_t min_free_inodes = 0;  // 0: the file system makes them as they are needed

  RoomLevel level() const;
  std::string text() const;  // "12M and 4711 files free, 1G and 10000 files are kept back"
};

// The setting, or where it is 0: 1 GiB or 2 % of the disk, whichever is less; 20,000 inodes or 2 %.
DiskRoom look_at_room(const Options& options);
DiskRoom room_of(const base::Space& space, const Options& options);

// Throws resource_exhausted unless there is room for `bytes` more. `what` is refused: "no command
// is started".
void require_room(const Options& options, std::string_view what, uint64_t bytes = 0);

}  // namespace moorage::workspace
