#include "state_db/damaged_copies.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/os/files.h"

namespace moorage::state_db {
namespace {

constexpr std::array kFiles{"state.db", "state.db-wal", "state.db-shm"};
constexpr std::string_view kPrefix = "state.db.damaged-";
constexpr std::string_view kUnfinished = ".new";
constexpr size_t kPieceBytes = 1 << 20;
constexpr uint64_t kSpareBytes = 64 << 20;  // stays free for the repair

uint64_t size_of(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode)
             ? static_cast<uint64_t>(status.st_size)
             : 0;
}

void copy_file(const std::string& from, const std::string& to) {
  const Fd source = base::open_file(from, O_RDONLY);
  const Fd target = base::open_file(to, O_WRONLY | O_CREAT | O_EXCL, 0600);
  for (uint64_t offset = 0;;) {
    const std::string piece = base::read_at(source.get(), kPieceBytes, offset);
    if (piece.empty()) break;
    base::write_all(target.get(), piece);
    offset += piece.size();
  }
  base::sync_file(target.get(), to);
}

bool same_file(const std::string& one, const std::string& other) {
  const uint64_t size = size_of(one);
  if (size != size_of(other)) return false;
  if (size == 0) return true;
  const Fd a = base::open_file(one, O_RDONLY);
  const Fd b = base::open_file(other, O_RDONLY);
  for (uint64_t offset = 0; offset < size; offset += kPieceBytes) {
    if (base::read_at(a.get(), kPieceBytes, offset) != base::read_at(b.get(), kPieceBytes, offset))
      return false;
  }
  return true;
}

std::vector<std::string> copies_in(const std::string& store) {
  std::vector<std::string> copies;
  for (const auto& name : base::list_directory(store)) {
    if (!name.starts_with(kPrefix)) continue;
    if (name.ends_with(kUnfinished)) {
      base::remove_tree(store + "/" + name);  // our own incomplete copy
    } else {
      copies.push_back(store + "/" + name);
    }
  }
  return copies;
}

Quarantined make_copy(const std::string& store, int64_t wall_ms) {
  uint64_t wanted = 0;
  for (const char* name : kFiles) wanted += size_of(store + "/" + name);
  if (wanted == 0) return {};
  const auto copies = copies_in(store);
  for (const auto& copy : copies) {
    // SQLite rebuilds the index of the log at each opening.
    const auto same = [&](const char* name) { return same_file(store + name, copy + name); };
    if (same("/state.db") && same("/state.db-wal")) return {copy, ""};
  }
  if (copies.size() >= kMaxQuarantined) {
    return {"", std::to_string(copies.size()) + " copies of damaged databases already exist"};
  }
  const uint64_t free_bytes = base::file_system_space(store).free_bytes;
  if (free_bytes < wanted + kSpareBytes) {
    return {"", "a copy needs " + std::to_string(wanted >> 20) + " MiB, but only " +
                    std::to_string(free_bytes >> 20) + " MiB are free"};
  }
  std::string time = base::format_utc(wall_ms);
  std::erase(time, ':');
  const std::string place = store + "/" + std::string(kPrefix) + time;
  const std::string unfinished = place + std::string(kUnfinished);
  base::make_directories(unfinished);
  for (const char* name : kFiles) {
    const std::string path = store + "/" + name;
    if (size_of(path) > 0) copy_file(path, unfinished + "/" + name);
  }
  base::sync_directory(unfinished);
  base::rename_into_place(unfinished, place);
  base::sync_directory(store);
  return {place, ""};
}

}  // namespace

Quarantined quarantine(const std::string& store, int64_t wall_ms) {
  try {
    return make_copy(store, wall_ms);
  } catch (const Error& error) {
    return {"", error.message()};
  }
}

}  // namespace moorage::state_db
