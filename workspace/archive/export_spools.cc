#include "workspace/archive/export_spools.h"

#include <algorithm>

#include "base/error.h"
#include "base/size_text.h"
#include "workspace/archive/store.h"

namespace moorage::workspace {
namespace {

// Fewer than the threads that write exports, so one user never occupies all of them.
constexpr size_t kMostOfOneUser = 3;

uint64_t sum_of(const std::vector<std::shared_ptr<base::ByteSpool>>& spools) {
  uint64_t bytes = 0;
  for (const auto& spool : spools) bytes += spool->held_bytes();
  return bytes;
}

}  // namespace

bool has_room_for_exports(const DiskRoom& room, uint64_t held_bytes) {
  return room.level() == RoomLevel::enough &&
         held_bytes <= room.space.free_bytes - room.min_free_bytes;
}

std::vector<std::shared_ptr<base::ByteSpool>> ExportSpools::present(
    const std::optional<uint32_t>& uid) {
  const std::lock_guard lock(mutex_);
  std::erase_if(all_, [](const One& one) { return one.spool.expired(); });
  std::vector<std::shared_ptr<base::ByteSpool>> found;
  for (const One& one : all_) {
    if (uid && one.uid != *uid) continue;
    if (auto spool = one.spool.lock()) found.push_back(std::move(spool));
  }
  return found;
}

std::shared_ptr<base::ByteSpool> ExportSpools::make(uint32_t uid) {
  auto made = std::make_shared<base::ByteSpool>(
      ArchiveStore::spool(context_.options.store),
      [this] { return has_room_for_exports(look_at_room(context_.options), bytes()); });
  const std::lock_guard lock(mutex_);
  const auto of_user = std::count_if(all_.begin(), all_.end(), [uid](const One& one) {
    return one.uid == uid && !one.spool.expired();
  });
  if (uid != 0 && static_cast<size_t>(of_user) >= kMostOfOneUser) {
    throw base::Error(base::Code::conflict,
                      "you have " + base::count_text(static_cast<size_t>(of_user), "export") +
                          " in progress or not fully read",
                      "read them, or end the clients that started them; then export again");
  }
  all_.push_back({uid, made});
  return made;
}

uint64_t ExportSpools::bytes_of(uint32_t uid) { return sum_of(present(uid)); }

uint64_t ExportSpools::bytes() { return sum_of(present(std::nullopt)); }

}  // namespace moorage::workspace
