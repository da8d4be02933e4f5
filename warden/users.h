// Users that may run commands: a fixed table. The agent can change the sandbox's /etc/passwd, and
// reading it through glibc would load name service modules from inside.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string_view>

namespace moorage::warden {

struct User {
  std::string_view name;
  uid_t uid;
  gid_t gid;
  std::string_view home;
};

inline constexpr User kUsers[] = {
    {"user", 1000, 1000, "/home/user"},
    {"root", 0, 0, "/root"},
};

inline std::optional<User> find_user(std::string_view name) {
  for (const User& user : kUsers) {
    if (user.name == name) return user;
  }
  return std::nullopt;
}

}  // namespace moorage::warden
