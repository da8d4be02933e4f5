// Child processes of the host: git, the sandbox launcher, probes. Built on Boost.Process. The child
// gets exactly the given environment (inherits none), no descriptor above 2 except the listed ones,
// and a deadline: when it passes, the process group is killed and Error(deadline_exceeded) is
// thrown. When the process ends by itself, the rest of its group is killed too; a daemon that
// should stay leaves the group with setsid(2). Never used for a command of a client or an agent.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace moorage::base {

struct ProcessOptions {
  std::map<std::string, std::string> environment;
  std::string directory = "/";
  std::string input;   // fed to standard input, then end of file
  int input_fd = -1;   // instead of `input`: the child reads this descriptor
  int output_fd = -1;  // instead of ProcessResult::output: the child writes to this descriptor
  std::chrono::milliseconds deadline{60'000};
  size_t max_output_bytes = 16 << 20;  // standard output; more: killed, resource_exhausted
  std::vector<int> inherit_fds;        // keep their numbers in the child
  uint64_t max_memory_bytes = 0;       // RLIMIT_AS; 0 = none
  uint64_t max_data_bytes = 0;         // RLIMIT_DATA: memory of its own, without mapped files
  uint64_t max_file_bytes = 0;         // RLIMIT_FSIZE; 0 = none
  // Called with each piece of standard error as it arrives (git's progress); may be empty.
  std::function<void(std::string_view)> on_error_output;
};

struct ProcessResult {
  int exit_code = 0;  // valid if signal == 0
  int signal = 0;     // the signal that ended it, or 0
  std::string output;
  std::string error;  // last 64 KiB of standard error
  bool ok() const { return exit_code == 0 && signal == 0; }
};

// argv[0] is an absolute path or searched in /usr/local/sbin ... /bin, never in the caller's PATH.
ProcessResult run_process(const std::vector<std::string>& argv, const ProcessOptions& options);

// The start time (/proc/PID/stat field 22) distinguishes a reused pid.
struct ProcessIdentity {
  int pid = 0;
  uint64_t start_ticks = 0;
  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};
ProcessIdentity identify_process(int pid);            // start_ticks 0: no such process
bool process_alive(const ProcessIdentity& identity);  // zombies and the dying count as dead

const std::string& boot_id();  // of the kernel; pids of another boot mean nothing

// /proc/PID/NAME; empty if the process has ended, even during the read, or access is denied.
std::string read_proc_file(int pid, const std::string& name);

}  // namespace moorage::base
