#include "base/mount_namespace.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>

#include <exception>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/fd.h"
#include "base/files.h"

namespace moorage::base {

void in_mount_namespace(const ProcessIdentity& of, const std::function<void()>& work) {
  const std::string pid = std::to_string(of.pid);
  const Fd mounts = open_file("/proc/" + pid + "/ns/mnt", O_RDONLY);
  // After the descriptor: so the number was not another process's when it was opened.
  if (!process_alive(of)) throw Error(Code::not_found, "process " + pid + " is gone");
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
