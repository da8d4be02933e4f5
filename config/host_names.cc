#include "config/host_names.h"

#include <grp.h>
#include <pwd.h>

#include <cerrno>
#include <optional>
#include <vector>

#include "base/error.h"
#include "config/values.h"

namespace moorage::config {
namespace {

constexpr size_t kMaxEntryBytes = 1 << 20;  // for a group with very many members
constexpr Range kIds{0, UINT32_MAX - 1};    // the kernel uses the last one for "no id"

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

// Grows the buffer until the entry fits. Empty: no such name.
template <typename Entry, typename Find>
std::optional<Entry> look_up(const std::string& name, const char* database, const Find& find) {
  std::vector<char> room(4096);
  for (;;) {
    Entry entry{};
    Entry* found = nullptr;
    const int error = find(name.c_str(), &entry, room.data(), room.size(), &found);
    if (found != nullptr) return entry;
    // Error codes that getpwnam(3) lists as "not found"; others mean that the database failed.
    if (error == 0 || error == ENOENT || error == ESRCH || error == EPERM) return std::nullopt;
    if (error != ERANGE || room.size() >= kMaxEntryBytes)
      base::throw_errno("read the " + std::string(database) + " database of this host", error);
    room.resize(room.size() * 4);
  }
}

[[noreturn]] void refuse(const char* kind, const std::string& name, const char* database) {
  throw Error(Code::invalid_argument,
              "there is no " + std::string(kind) + " \"" + name + "\" on this host",
              "`getent " + std::string(database) + "` lists them; a number needs no entry.");
}

}  // namespace

uint32_t user_id(const std::string& name) {
  if (is_number(name)) return static_cast<uint32_t>(parse_integer(name, kIds));
  const auto entry = look_up<passwd>(name, "the user database", getpwnam_r);
  if (!entry) refuse("user", name, "passwd");
  return entry->pw_uid;
}

uint32_t group_id(const std::string& name) {
  if (is_number(name)) return static_cast<uint32_t>(parse_integer(name, kIds));
  const auto entry = look_up<group>(name, "the group database", getgrnam_r);
  if (!entry) refuse("group", name, "group");
  return entry->gr_gid;
}

}  // namespace moorage::config
