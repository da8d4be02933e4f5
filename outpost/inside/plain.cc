#include "outpost/inside/plain.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/files.h"
#include "base/wire/trust.h"
#include "outpost/directory.h"
#include "outpost/inside/copy_tree.h"
#include "outpost/inside/process_tree.h"

namespace moorage::outpost {
namespace {

constexpr auto kEndPatience = std::chrono::milliseconds(10'000);
constexpr const char* kObjects = "/.moorage/objects";
constexpr size_t kMaxSmallFile = 4096;

struct Place {
  const char* path;
  const char* part;  // in the sandbox's directory
};
constexpr Place kPlaces[] = {{"/workspace", "tree"}, {"/home/user", "home"}};

// The sandbox that has the places: a file of the directory of Moorage there.
std::string owner_file(const std::string& sandbox) {
  return sandbox.substr(0, sandbox.find("/sandboxes/")) + "/plain";
}

std::string name_of(const std::string& sandbox) { return sandbox.substr(sandbox.rfind('/') + 1); }

void take_places(const std::string& sandbox) {
  for (const Place& place : kPlaces) {
    if ((sandbox + "/").starts_with(std::string(place.path) + "/")) {
      throw Error(Code::unsupported, "Moorage's directory must not lie below " +
                                         std::string(place.path) + ", which is the sandbox's");
    }
  }
  const std::string file = owner_file(sandbox);
  const auto owner = base::read_file_if_exists(file, kMaxSmallFile);
  const std::string name = name_of(sandbox);
  if (owner && *owner != name &&
      base::path_exists(sandbox.substr(0, sandbox.rfind('/') + 1) + *owner)) {
    throw Error(Code::conflict, "the sandbox " + *owner + " has /workspace of this machine",
                "remove it first");
  }
  base::write_file(file, name);
}

// Without a shell: nothing is expanded. True if sudo needs no password and it succeeded.
bool run_as_root(const char* const* argv) {
  const pid_t pid = fork();
  if (pid == 0) {
    const Fd null = base::open_file("/dev/null", O_RDWR);
    for (int fd = 0; fd <= 2; ++fd) dup2(null.get(), fd);
    execv("/usr/bin/sudo", const_cast<char* const*>(argv));
    _exit(127);
  }
  int status = 0;
  while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return pid > 0 && status == 0;
}

bool make_as_root(const std::string& path) {
  const std::string owner = std::to_string(geteuid()) + ":" + std::to_string(getegid());
  const std::string parent = path.substr(0, path.rfind('/') + 1);
  const char* const make_parent[] = {"sudo", "-n", "mkdir", "-p", parent.c_str(), nullptr};
  const char* const make[] = {"sudo", "-n", "mkdir", "-p", "-m", "755", path.c_str(), nullptr};
  const char* const own[] = {"sudo", "-n", "chown", "-h", owner.c_str(), path.c_str(), nullptr};
  return run_as_root(make_parent) && run_as_root(make) && run_as_root(own);
}

bool is_ours(const std::string& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) return false;
  return geteuid() == 0 || status.st_uid == geteuid();
}

void make_place(const std::string& path) {
  if (is_ours(path)) return;
  const std::string parent = path.substr(0, path.rfind('/'));
  if (!parent.empty()) mkdir(parent.c_str(), 0755);
  const int reason = mkdir(path.c_str(), 0755) == 0 ? 0 : errno;
  if (is_ours(path) || (geteuid() != 0 && make_as_root(path) && is_ours(path))) return;
  const std::string problem = "cannot make the directory " + path +
                              " of this machine: " + std::system_category().message(reason);
  if (geteuid() == 0) throw Error(Code::unsupported, problem);
  throw Error(Code::unsupported,
              problem + " as user " + std::to_string(geteuid()) +
                  ", and sudo is missing or asks for a password",
              "run as root there, or make " + path + " in the image, owned by that user");
}

// Renames, so that nothing is lost and large files cost nothing.
void move_contents(const std::string& from, const std::string& to) {
  for (const std::string& name : base::list_directory(from)) {
    if (rename((from + "/" + name).c_str(), (to + "/" + name).c_str()) == 0) continue;
    const int reason = errno;
    throw Error(Code::unsupported,
                "cannot move " + from + "/" + name +
                    " of this machine aside: " + std::system_category().message(reason),
                "use an image in which " + from + " is empty");
  }
}

void move_aside(const std::string& sandbox) {
  const std::string before = sandbox + "/before";
  if (base::path_exists(before + "/done")) return;
  make_private_directory(before);
  for (const Place& place : kPlaces) {
    make_private_directory(before + "/" + place.part);
    move_contents(place.path, before + "/" + place.part);
  }
  base::write_file(before + "/done", "");
}

// A copy that was interrupted starts over.
void fill(const RootPlan& plan) {
  const std::string done = plan.sandbox + "/copied";
  if (base::path_exists(done)) return;
  for (const Place& place : kPlaces) remove_contents(place.path);
  const uint32_t user = geteuid() == 0 ? kInsideUser : geteuid();
  for (const Place& place : kPlaces) {
    base::check(chmod(place.path, 0755), std::string("set the mode of ") + place.path);
    if (geteuid() != 0) continue;
    base::check(lchown(place.path, user, user), std::string("change the owner of ") + place.path);
  }
  if (!plan.tree.empty()) copy_tree(plan.tree, kPlaces[0].path);
  base::write_file(done, "");
}

// Its own children and those that lost their parent.
void await_end(pid_t warden) {
  for (;;) {
    const pid_t ended = waitpid(-1, nullptr, 0);
    if (ended == warden || (ended < 0 && errno != EINTR)) return;
  }
}

[[noreturn]] void run(const Handover& handover, const Limits& limits) {
  const uint32_t base = geteuid() == 0 ? 0 : geteuid() - kInsideUser;
  const pid_t warden = fork();
  if (warden == 0)
    exec_warden(handover, limits, {"--subreaper", "--user-base", std::to_string(base)});
  for (const Fd* fd : {&handover.listener, &handover.spool, &handover.warden}) close(fd->get());
  if (warden > 0) await_end(warden);
  kill_descendants(getpid(), kEndPatience);
  _exit(0);
}

}  // namespace

void make_plain_places(const RootPlan& plan) {
  umask(022);
  take_places(plan.sandbox);
  for (const Place& place : kPlaces) make_place(place.path);
  move_aside(plan.sandbox);
  fill(plan);
  for (const auto& [tree, place] :
       {std::pair{&plan.objects, kObjects}, {&plan.certificates, base::kCertificatesInside}}) {
    if (tree->empty()) continue;
    make_place(place);
    copy_tree(*tree, place);
  }
}

void clear_plain_places(const std::string& sandbox) {
  const std::string file = owner_file(sandbox);
  const auto owner = base::read_file_if_exists(file, kMaxSmallFile);
  if (!owner || *owner != name_of(sandbox)) return;
  const std::string before = sandbox + "/before";
  const bool filled = base::path_exists(before + "/done");  // else nothing was moved or copied yet
  for (const Place& place : kPlaces) {
    const std::string aside = before + "/" + place.part;
    if (filled && is_ours(place.path)) remove_contents(place.path);
    if (base::path_exists(aside)) move_contents(aside, place.path);
  }
  for (const char* copied : {kObjects, base::kCertificatesInside}) {
    if (is_ours(copied)) remove_contents(copied);
  }
  base::check(unlink(file.c_str()), "remove " + file);
}

void make_plain_process(const RootPlan& plan, ProcessOne one, const Handover& handover) {
  one.overlay = OverlayKind::none;
  NewProcess process;
  process.limits = plan.limits;
  process.processors = choose_processors(plan.sandbox, plan.limits);
  process.set_up = [] {
    base::check(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "become a subreaper");
    base::check(chdir("/"), "change to /");
  };
  process.lock_down = [] {
    prctl(PR_SET_DUMPABLE, 0);
    base::check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "forbid new privileges");
  };
  process.run = [&handover, &plan] { run(handover, plan.limits); };
  make_recorded_process(plan.sandbox, std::move(one), handover, process);
}

}  // namespace moorage::outpost
