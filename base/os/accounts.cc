#include "base/os/accounts.h"

#include <grp.h>
#include <pwd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <vector>

namespace moorage::base {
namespace {

constexpr size_t kEntryBytes = 16 << 10;
constexpr size_t kMaxEntryBytes = 1 << 20;
constexpr int kMaxGroups = 65'536;  // NGROUPS_MAX
constexpr size_t kMostKnown = 10'000;
constexpr std::chrono::minutes kRemembered{1};

std::string look_up(uint32_t uid) {
  std::vector<char> room(kEntryBytes);
  passwd entry{};
  passwd* found = nullptr;
  // Only for display: fall back to the number if the entry is too large or the service fails.
  getpwuid_r(uid, &entry, room.data(), room.size(), &found);
  return found != nullptr ? entry.pw_name : "uid " + std::to_string(uid);
}

class UserNames {
 public:
  std::string name(uint32_t uid) {
    const auto now = std::chrono::steady_clock::now();
    {
      const std::lock_guard lock(mutex_);
      const auto known = known_.find(uid);
      if (known != known_.end() && now < known->second.until) return known->second.name;
    }
    std::string name = look_up(uid);
    const std::lock_guard lock(mutex_);
    if (known_.size() >= kMostKnown) known_.clear();
    known_[uid] = {name, now + kRemembered};
    return name;
  }

 private:
  struct Known {
    std::string name;
    std::chrono::steady_clock::time_point until;
  };
  std::mutex mutex_;
  std::map<uint32_t, Known> known_;
};

}  // namespace

std::string user_name(uint32_t uid) {
  static UserNames names;
  return names.name(uid);
}

std::optional<std::vector<uint32_t>> groups_of_user(uint32_t uid) {
  std::vector<char> room(4096);
  passwd entry{};
  passwd* found = nullptr;
  while (getpwuid_r(uid, &entry, room.data(), room.size(), &found) == ERANGE) {
    if (room.size() >= kMaxEntryBytes) return std::nullopt;
    room.resize(room.size() * 4);
  }
  if (found == nullptr) return std::nullopt;
  int count = 64;
  std::vector<gid_t> groups(static_cast<size_t>(count));
  while (getgrouplist(entry.pw_name, entry.pw_gid, groups.data(), &count) < 0) {
    if (count > kMaxGroups) return std::nullopt;
    // glibc reported how many there are.
    count = std::max(count, static_cast<int>(groups.size()) * 2);
    groups.resize(static_cast<size_t>(count));
  }
  groups.resize(static_cast<size_t>(count));
  return groups;
}

}  // namespace moorage::base
