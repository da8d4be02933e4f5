#include "workspace/context/free_space.h"

#include <algorithm>

#include "base/error.h"
#include "base/size_text.h"

namespace moorage::workspace {
namespace {

constexpr uint64_t kUsualBytes = 1ULL << 30;
constexpr uint64_t kUsualInodes = 20'000;
constexpr uint64_t kUsualShare = 50;  // one fiftieth of the disk

uint64_t line(uint64_t set, uint64_t usual, uint64_t total) {
  return set > 0 ? set : std::min(usual, total / kUsualShare);
}

bool below(const DiskRoom& room, uint64_t divisor) {
  return room.space.free_bytes < room.min_free_bytes / divisor ||
         room.space.free_inodes < room.min_free_inodes / divisor;
}

}  // namespace

RoomLevel DiskRoom::level() const {
  if (below(*this, 2)) return RoomLevel::short_of;
  return below(*this, 1) ? RoomLevel::low : RoomLevel::enough;
}

std::string DiskRoom::text() const {
  std::string free = base::size_text(space.free_bytes);
  std::string kept = base::size_text(min_free_bytes);
  if (min_free_inodes > 0) {
    free += " and " + std::to_string(space.free_inodes) + " files";
    kept += " and " + std::to_string(min_free_inodes) + " files";
  }
  return free + " free, " + kept + " reserved";
}

DiskRoom room_of(const base::Space& space, const Options& options) {
  DiskRoom room;
  room.space = space;
  room.min_free_bytes = line(options.min_free_bytes, kUsualBytes, space.total_bytes);
  // A file system without an inode table has no inode limit either.
  if (space.total_inodes > 0) {
    room.min_free_inodes = line(options.min_free_inodes, kUsualInodes, space.total_inodes);
  }
  return room;
}

DiskRoom look_at_room(const Options& options) {
  return room_of(base::file_system_space(options.store), options);
}

void require_room(const Options& options, std::string_view what, uint64_t bytes) {
  DiskRoom room = look_at_room(options);
  std::string text = room.text();
  if (bytes > 0) text += ", " + base::size_text(bytes) + " more needed";
  room.space.free_bytes -= std::min(bytes, room.space.free_bytes);
  if (room.level() == RoomLevel::enough) return;
  throw base::Error(base::Code::resource_exhausted,
                    std::string(what) + ": the disk of the store is nearly full (" + text + ")",
                    "moorage gc --explain shows what can be freed, moorage du what uses the disk; "
                    "to free some: moorage exec NAME -- rm FILE, moorage rm --purge NAME; other "
                    "commands that free space: moorage exec --free-space NAME -- COMMAND");
}

}  // namespace moorage::workspace
