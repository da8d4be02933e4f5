#include "repo_cache/fsuid_threads.h"

#include <linux/capability.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"

namespace moorage::repo_cache {

namespace {

using CapabilitySets = std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3>;

void set_file_system_ids(uint32_t id) {
  // Raw calls: they act on the calling thread only and return the previous id, never an error.
  syscall(SYS_setfsgid, id);
  syscall(SYS_setfsuid, id);
  const auto none = static_cast<uint32_t>(-1);
  if (static_cast<uint32_t>(syscall(SYS_setfsuid, none)) != id ||
      static_cast<uint32_t>(syscall(SYS_setfsgid, none)) != id) {
    throw Error(Code::permission_denied, "cannot create files for other users",
                "the daemon must run as root");
  }
}

void become_owner(uint32_t id) {
  base::check(unshare(CLONE_FS), "give a thread its own umask");
  umask(022);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  CapabilitySets sets{};
  base::check(syscall(SYS_capget, &header, sets.data()), "read the capabilities of a thread");
  set_file_system_ids(id);
  base::check(syscall(SYS_capset, &header, sets.data()), "set the capabilities of a thread");
}

}  // namespace

void run_as_owner(uint32_t id, unsigned threads, const std::function<void(unsigned)>& work) {
  std::mutex mutex;
  std::exception_ptr first;
  const auto run = [&](unsigned number) {
    try {
      become_owner(id);
      work(number);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    }
  };
  std::vector<std::thread> running;
  running.reserve(threads);
  for (unsigned i = 0; i < threads; ++i) running.emplace_back(run, i);
  for (auto& thread : running) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace moorage::repo_cache
