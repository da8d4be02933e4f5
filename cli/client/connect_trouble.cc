#include "cli/client/connect_trouble.h"

#include <sys/stat.h>

#include "cli/client/accounts.h"

namespace moorage::cli {
namespace {

std::string who_may(const std::string& socket_path) {
  struct stat found {};
  const bool known = ::stat(socket_path.c_str(), &found) == 0;
  if (known && (found.st_mode & S_IWGRP) == 0) return "only its owner may use it: sudo moorage ...";
  const std::string group = known ? group_name(found.st_gid) : "moorage";
  return "join the group " + group + ": sudo usermod -aG " + group +
         " $USER, then open a new shell";
}

}  // namespace

Error connect_trouble(const std::string& socket_path, const Error& cause) {
  if (cause.code() == Code::permission_denied) {
    return Error(Code::permission_denied,
                 "no permission to connect to the daemon at " + socket_path, who_may(socket_path));
  }
  const std::string text = "cannot reach the daemon at " + socket_path + ": ";
  const char* start = "start it with: sudo systemctl start moorage  or  sudo ./quickstart";
  struct stat found {};
  if (::stat(socket_path.c_str(), &found) != 0)
    return Error(Code::unavailable, text + "the socket does not exist", start);
  if (!S_ISSOCK(found.st_mode)) {
    return Error(Code::unavailable, text + "not a socket",
                 "--socket and MOORAGE_SOCKET name the daemon's socket; without them it is "
                 "/run/moorage/mooraged.sock");
  }
  if (cause.message().ends_with("File name too long")) {
    return Error(Code::unavailable, text + "the name is too long",
                 "a socket path has at most 107 bytes: set a shorter one in api.socket");
  }
  return Error(Code::unavailable, text + cause.message(), start);
}

}  // namespace moorage::cli
