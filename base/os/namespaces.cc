#include "base/os/namespaces.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>

#include <exception>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/files.h"

namespace moorage::base {
namespace {

struct Kind {
  const char* file;  // in /proc/PID/ns
  int flag;
  const char* name;
};

// A sandbox's settings must never be written into the host's namespace.
void require_foreign(const Fd& target, const Kind& kind, const std::string& pid) {
  struct stat theirs {};
  struct stat ours {};
  check(fstat(target.get(), &theirs), "identify a namespace");
  check(stat((std::string("/proc/self/ns/") + kind.file).c_str(), &ours), "identify a namespace");
  if (theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino)
    throw Error(Code::internal, "process " + pid + " has no " + kind.name + " of its own");
}

void run_inside(const Kind& kind, const ProcessIdentity& of, const std::function<void()>& work) {
  const std::string pid = std::to_string(of.pid);
  const Fd target(open(("/proc/" + pid + "/ns/" + kind.file).c_str(), O_RDONLY | O_CLOEXEC));
  const int error_number = errno;
  // Checked after the open: so the number did not belong to another process then.
  if (!process_alive(of)) throw Error(Code::unavailable, "process " + pid + " no longer exists");
  const std::string what = std::string("the ") + kind.name + " of process " + pid;
  if (!target) throw_errno("open " + what, error_number);
  if (kind.flag == CLONE_NEWNET) require_foreign(target, kind, pid);
  std::exception_ptr failure;
  std::thread inside([&] {
    // Signals are for the caller's other threads.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    try {
      check(unshare(CLONE_FS), "unshare the root directory");
      check(setns(target.get(), kind.flag), "enter " + what);
      work();
    } catch (...) {
      failure = std::current_exception();
    }
  });
  inside.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

void in_mount_namespace(const ProcessIdentity& of, const std::function<void()>& work) {
  run_inside({"mnt", CLONE_NEWNS, "mounts"}, of, work);
}

void in_network_namespace(const ProcessIdentity& of, const std::function<void()>& work) {
  run_inside({"net", CLONE_NEWNET, "network"}, of, work);
}

}  // namespace moorage::base
