#include "link/worker_process.h"

#include <linux/capability.h>
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "link/keeper_line.h"
#include "link/provider_key.h"

namespace moorage::link {
namespace {

constexpr rlim_t kOpenFiles = 16384;

}  // namespace

Inherited take_over(int line) {
  Inherited all;
  while (auto message = receive_line(line)) {
    switch (message->kind) {
      case LineMessage::Kind::listener:
        all.listener = std::move(message->fd);
        break;
      case LineMessage::Kind::keep:
        all.journals.push_back(
            {std::move(message->text), std::move(message->fd), message->room_bytes});
        break;
      case LineMessage::Kind::name_space:
        all.name_space = std::move(message->fd);
        break;
      case LineMessage::Kind::network_line:
        all.network_line = std::move(message->fd);
        break;
      case LineMessage::Kind::key:
      case LineMessage::Kind::drop:
      case LineMessage::Kind::connected:
        break;
      case LineMessage::Kind::go:
        return all;
    }
  }
  throw Error(Code::unavailable, "the keeper has ended");
}

std::string ask_for_key(int line) {
  base::Pipe pipe = base::make_pipe();
  send_line(line, {.kind = LineMessage::Kind::key, .fd = std::move(pipe.write_end)});
  return receive_key(pipe.read_end.get());
}

void give_up_rights() {
  base::check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "give up new rights");
  for (unsigned long capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0;
       ++capability) {
    prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
  }
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> none{};
  base::check(syscall(SYS_capset, &header, none.data()), "give up capabilities");
}

std::unique_ptr<InsideSockets> enter_network(base::Fd name_space) {
  if (!name_space) return nullptr;
  return std::make_unique<InsideSockets>(std::move(name_space), give_up_rights);
}

void set_up_process() {
  prctl(PR_SET_DUMPABLE, 0);
  signal(SIGPIPE, SIG_IGN);
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_THRESHOLD, 64 << 10);
  mallopt(M_TRIM_THRESHOLD, 64 << 10);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::min(limit.rlim_max, kOpenFiles);
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace moorage::link
