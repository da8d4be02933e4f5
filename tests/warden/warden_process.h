// A real warden for one test: started over a bootstrap socket in a temporary directory, either as a
// subreaper here or as process 1 of a fresh pid and mount namespace; killed at the end.
#pragma once

#include <sys/types.h>

#include <boost/json/object.hpp>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "backends/envd_client.h"
#include "base/os/fd.h"
#include "base/wire/journal.h"
#include "patience.h"

namespace moorage::test {

using namespace std::chrono_literals;
using tests::patience;
using tests::patient;

enum class Role { subreaper, process_one };

class WardenProcess {
 public:
  explicit WardenProcess(Role role = Role::subreaper, const std::vector<std::string>& options = {});
  ~WardenProcess();
  WardenProcess(const WardenProcess&) = delete;
  WardenProcess& operator=(const WardenProcess&) = delete;

  backends::EnvdClient client() const { return backends::EnvdClient({socket_path()}); }
  std::string socket_path() const { return directory_ + "/envd.sock"; }
  std::string spool_path() const { return directory_ + "/spool"; }
  const std::string& directory() const { return directory_; }
  pid_t pid() const { return warden_; }  // the warden's, as seen from here
  std::vector<pid_t> children() const;   // direct ones, including zombies
  size_t open_descriptors() const;
  int wait_for_exit(std::chrono::milliseconds deadline);  // exit code; -1: still running

 private:
  std::string directory_;
  pid_t child_ = -1;  // ours: the warden or unshare(1)
  pid_t warden_ = -1;
};

// The contents of a journal.
struct Record {
  uint32_t pid = 0;
  bool first_is_started = false;
  std::string output, error, terminal;
  int limit_frames = 0;
  size_t frames = 0;
  bool ended = false;
  boost::json::object end;
  std::string late, late_error, late_terminal;  // output after the end
  uint64_t dropped_bytes = 0;                   // in gaps

  std::string kind() const;
  int code() const;
  int signal() const;
  std::string error_text() const;
  std::string failure() const;
};

struct Journal {
  explicit Journal(std::string path);
  Record read() const;  // up to its current end
  Record wait_for_end(std::chrono::milliseconds deadline = 20s) const;
  std::string path;
  base::Fd append_fd;
};

backends::StartRequest shell(const std::string& script);  // sh -c script, in /tmp, as root
// Starts with its own journal and waits for the end.
Record run(WardenProcess& warden, backends::StartRequest request,
           std::chrono::milliseconds deadline = 20s);

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds deadline = 10s);
bool process_lives(pid_t pid);  // false for zombies
std::string sha256_hex(std::string_view bytes);

}  // namespace moorage::test
