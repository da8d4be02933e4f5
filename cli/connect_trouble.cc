#include "cli/connect_trouble.h"

#include <sys/stat.h>

#include <sstream>

#include "base/files.h"

namespace moorage::cli {
namespace {

using base::Code;
using base::Error;

// By hand: the C library's look-up would load the name service, and this program is static.
std::string group_name(gid_t gid) {
  std::istringstream groups(base::read_file_if_exists("/etc/group").value_or(""));
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string id = line.substr(second + 1, line.find(':', second + 1) - second - 1);
    if (id == std::to_string(gid)) return line.substr(0, first);
  }
  return std::to_string(gid);
}

std::string who_may(const std::string& socket_path) {
  struct stat found {};
  const bool known = ::stat(socket_path.c_str(), &found) == 0;
  if (known && (found.st_mode & S_IWGRP) == 0) return "only its owner may: sudo moorage ...";
  const std::string group = known ? group_name(found.st_gid) : "moorage";
  return "join the group " + group + ": sudo usermod -aG " + group +
         " $USER, then open a new shell";
}

}  // namespace

Error connect_trouble(const std::string& socket_path, const Error& cause) {
  if (cause.code() == Code::permission_denied) {
    return Error(Code::permission_denied, "no permission to speak to the daemon at " + socket_path,
                 who_may(socket_path));
  }
  const std::string text = "cannot reach the daemon at " + socket_path + ": ";
  const char* start = "start it with: sudo systemctl start moorage  or  sudo ./quickstart";
  struct stat found {};
  if (::stat(socket_path.c_str(), &found) != 0)
    return Error(Code::unavailable, text + "there is no such socket", start);
  if (!S_ISSOCK(found.st_mode)) {
    return Error(Code::unavailable, text + "this is not a socket",
                 "--socket and MOORAGE_SOCKET name the daemon's socket; without them it is "
                 "/run/moorage/mooraged.sock");
  }
  if (cause.message().ends_with("File name too long")) {
    return Error(Code::unavailable, text + "the name is too long",
                 "the path of a socket has 107 bytes at most: give it a shorter one in api.socket");
  }
  return Error(Code::unavailable, text + cause.message(), start);
}

}  // namespace moorage::cli
