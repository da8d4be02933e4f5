#include "base/os/mount_namespace.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>

#include <exception>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/files.h"

namespace moorage::base {

void in_mount_namespace(const ProcessIdentity& of, const std::function<void()>& work) {
  const std::string pid = std::to_string(of.pid);
  const Fd mounts(open(("/proc/" + pid + "/ns/mnt").c_str(), O_RDONLY | O_CLOEXEC));
  const int error_number = errno;
  // Checked after the open: so the number did not belong to another process then.
  if (!process_alive(of)) throw Error(Code::unavailable, "process " + pid + " no longer exists");
  if (!mounts) throw_errno("open the mounts of process " + pid, error_number);
  std::exception_ptr failure;
  std::thread inside([&] {
    // Signals are for the caller's other threads.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    try {
      check(unshare(CLONE_FS), "unshare the root directory");
      check(setns(mounts.get(), CLONE_NEWNS), "enter the mounts of process " + pid);
      work();
    } catch (...) {
      failure = std::current_exception();
    }
  });
  inside.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace moorage::base
