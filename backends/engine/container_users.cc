#include "backends/engine/container_users.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <sstream>

#include "backends/engine/container_files.h"
#include "backends/host_image.h"
#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/files.h"
#include "base/parts.h"

namespace moorage::backends {
namespace {

constexpr size_t kMaxBytes = 1 << 20;

bool is_executable(int root, const std::string& path) {
  try {
    struct stat status {};
    const Fd file = base::open_regular_in_root(root, path, O_RDONLY);
    return fstat(file.get(), &status) == 0 && (status.st_mode & S_IXOTH) != 0;
  } catch (const Error&) {
    return false;
  }
}

struct Users {
  std::string others;  // lines with another name and another id
  std::string user_shell;
};

Users split(const std::string& text, const std::string& id) {
  Users users;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto fields = base::split(line, ':');
    if (fields[0] == "user") {
      users.user_shell = fields.size() == 7 ? fields[6] : "";
    } else if (fields.size() < 3 || fields[2] != id) {
      users.others += line + "\n";
    }
  }
  return users;
}

// The shell from the image's entry for `user`, or the better of two entries.
std::string shell_of(const Users& users, int root) {
  if (users.user_shell.starts_with("/")) return users.user_shell;
  return is_executable(root, "/bin/bash") ? "/bin/bash" : "/bin/sh";
}

}  // namespace

uint32_t first_mapped_id(const base::ProcessIdentity& process) {
  std::istringstream map(base::read_file("/proc/" + std::to_string(process.pid) + "/uid_map"));
  uint32_t inside = 0;
  uint32_t outside = 0;
  if (!(map >> inside >> outside) || inside != 0 || !base::process_alive(process)) {
    throw Error(Code::unavailable, "the container's process 1 exited at startup");
  }
  return outside;
}

ShownFiles write_users(const base::ProcessIdentity& init, uint32_t user_id,
                       const std::string& directory) {
  const Fd root = base::open_directory("/proc/" + std::to_string(init.pid) + "/root");
  const std::string id = std::to_string(user_id);
  ShownFiles files;
  const auto write = [&](const std::string& name, const std::string& text) {
    const std::string copy = directory + "/" + name;
    base::write_file(copy, text, 0644);
    files.emplace_back(copy, "/etc/" + name);
  };
  if (const auto text = read_inside(root.get(), "/etc/passwd", kMaxBytes)) {
    const Users users = split(*text, id);
    write("passwd", users.others + "user:x:" + id + ":" + id +
                        ":user:/home/user:" + shell_of(users, root.get()) + "\n");
  }
  if (const auto text = read_inside(root.get(), "/etc/group", kMaxBytes))
    write("group", split(*text, id).others + "user:x:" + id + ":\n");
  // An engine shows its host's files in their place, or empty ones.
  const std::pair<const char*, const char*> names[] = {
      {"hosts", kHosts}, {"hostname", "sandbox\n"}, {"resolv.conf", kResolverFile}};
  for (const auto& [name, text] : names) {
    if (read_inside(root.get(), std::string("/etc/") + name, kMaxBytes)) write(name, text);
  }
  return files;
}

}  // namespace moorage::backends
