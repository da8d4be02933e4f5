#include "outpost/programs.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sstream>

#include "base/error.h"
#include "base/os/files.h"

namespace moorage::outpost {

std::string own_path() {
  char path[4096];
  const ssize_t size =
      base::check(readlink("/proc/self/exe", path, sizeof path), "find this program");
  return std::string(path, static_cast<size_t>(size));
}

std::string warden_path() {
  const std::string path = own_path();
  return path.substr(0, path.rfind('/') + 1) + "moorage-warden";
}

Fd open_warden() {
  const std::string path = warden_path();
  Fd file(open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!file) {
    throw Error(Code::unavailable, "the machine has lost the program " + path,
                "stop the sandbox: its next start puts the program there again");
  }
  struct stat status {};
  base::check(fstat(file.get(), &status), "inspect " + path);
  const mode_t mode = geteuid() == 0 ? 0711 : 0500;
  if (status.st_uid == geteuid() && (status.st_mode & 07777) != mode)
    base::check(chmod(path.c_str(), mode), "set the mode of " + path);
  return file;
}

void write_own_pid(const std::string& path) {
  const base::ProcessIdentity own = base::identify_process(getpid());
  base::write_file(path, std::to_string(own.pid) + " " + std::to_string(own.start_ticks) + " " +
                             base::boot_id());
}

std::optional<base::ProcessIdentity> read_pid(const std::string& path) {
  const auto text = base::read_file_if_exists(path, 4096);
  if (!text) return {};
  std::istringstream fields(*text);
  base::ProcessIdentity identity;
  std::string boot;
  fields >> identity.pid >> identity.start_ticks >> boot;
  if (boot != base::boot_id() || !base::process_alive(identity)) return {};
  return identity;
}

}  // namespace moorage::outpost
