#include "outpost/inside/process_one.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <boost/json.hpp>
#include <cerrno>

#include "base/error.h"
#include "base/net/loopback.h"
#include "base/os/files.h"
#include "outpost/operation.h"
#include "seccomp_filter.h"

namespace moorage::outpost {
namespace {

namespace json = boost::json;

constexpr int kNamespaces = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET;
constexpr char kRecorded = 'r';
// What root inside may do, as in backends/launch/root_capabilities.h.
constexpr int kKeptCapabilities[] = {CAP_CHOWN,      CAP_DAC_OVERRIDE, CAP_FOWNER,
                                     CAP_FSETID,     CAP_KILL,         CAP_SETGID,
                                     CAP_SETUID,     CAP_SETPCAP,      CAP_NET_BIND_SERVICE,
                                     CAP_SYS_CHROOT, CAP_AUDIT_WRITE,  CAP_SETFCAP};

std::string record_path(const std::string& sandbox) { return sandbox + "/init.json"; }

void write_proc(const std::string& path, const std::string& text) {
  const Fd file = base::open_file(path, O_WRONLY);
  base::check(write(file.get(), text.data(), text.size()), "write " + path);
}

// Without root inside, nobody could have any of them.
void drop_bounding_set(bool as_root) {
  for (int capability = 0; prctl(PR_CAPBSET_READ, capability) >= 0; ++capability) {
    bool kept = false;
    for (int name : kKeptCapabilities) kept = kept || (as_root && name == capability);
    if (!kept) base::check(prctl(PR_CAPBSET_DROP, capability), "drop a capability");
  }
}

// In these a command would have all capabilities, and so reach more of the kernel. The call filter
// refuses them, too; this holds for programs that it does not see.
void forbid_user_namespaces() {
  const std::string path = "/proc/sys/user/max_user_namespaces";
  if (base::path_exists(path)) write_proc(path, "0");
}

// Files of the machine's root, which inside root shall not be able to read even as its owner.
void become_inside_root() {
  base::check(setgroups(0, nullptr), "leave the groups");
  base::check(setresgid(0, 0, 0), "become root inside");
  base::check(setresuid(0, 0, 0), "become root inside");
}

// The mounts came into this namespace locked, and a locked mount cannot become the root: use a copy
// of it. It is found by its path, as the machine's user who may enter the sandbox's directory.
void stand_on_root(const std::string& place) {
  base::check(chdir(place.c_str()), "enter " + place);
  base::check(mount(".", place.c_str(), nullptr, MS_BIND | MS_REC, nullptr), "copy the root");
  base::check(chdir(place.c_str()), "enter " + place);
}

void await_start() {
  sigset_t awaited;
  sigemptyset(&awaited);
  sigaddset(&awaited, SIGUSR1);
  int signal = 0;
  while (sigwait(&awaited, &signal) != 0 || signal != SIGUSR1) {
  }
}

// Rooted in the sandbox's own groups: /proc/self/cgroup shows paths that exist inside, and no name
// of the machine's.
void hide_other_groups() {
  if (unshare(CLONE_NEWCGROUP) == 0 || errno == EINVAL) return;  // EINVAL: before Linux 4.6
  base::throw_allowance("create a cgroup namespace", "user.max_cgroup_namespaces", errno);
}

void set_up(const RootPlan& plan) {
  const bool as_root = plan.overlay == OverlayKind::root;
  if (as_root) hide_other_groups();
  stand_on_root(root_place(plan.sandbox));
  if (as_root) become_inside_root();
  enter_root(as_root);
  base::check(sethostname("sandbox", 7), "name the sandbox");
  base::set_up_sandbox_network();
  forbid_user_namespaces();
}

void lock_down(bool as_root) {
  drop_bounding_set(as_root);
  base::check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "forbid new privileges");
  launch::install_allowlist();
  launch::install_late_denylist();
}

struct Pipes {
  base::Pipe to_it;
  base::Pipe from_it;
};

void keep_only(const Handover& handover, const Pipes& pipes) {
  const Fd null = base::open_file("/dev/null", O_RDWR);
  for (int fd = 0; fd <= 2; ++fd) base::check(dup2(null.get(), fd), "set up a stream");
  close_all_but({handover.listener.get(), handover.spool.get(), handover.warden.get(),
                 pipes.to_it.read_end.get(), pipes.from_it.write_end.get()});
  for (const Fd* kept : {&handover.listener, &handover.spool})
    base::check(fcntl(kept->get(), F_SETFD, 0), "set up a descriptor");
  const rlimit no_core{0, 0};
  base::check(setrlimit(RLIMIT_CORE, &no_core), "forbid core dumps");
}

[[noreturn]] void run_process_one(const NewProcess& process, const Handover& handover,
                                  Pipes& pipes) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  pipes.to_it.write_end.reset();
  pipes.from_it.read_end.reset();
  const int answer = pipes.from_it.write_end.get();
  try {
    setsid();
    if (base::read_up_to(pipes.to_it.read_end.get(), 1).size() != 1) _exit(1);
    process.set_up();
    keep_only(handover, pipes);
    process.lock_down();
    prctl(PR_SET_NAME, "moorage-inside");
    base::write_all(answer, "k");
  } catch (const Error& error) {
    try {
      base::write_all(answer, "e" + error.message());
    } catch (const Error&) {
      _exit(1);
    }
    _exit(1);
  }
  close(pipes.from_it.write_end.release());
  // Without a record nobody would find this process again.
  if (base::read_up_to(pipes.to_it.read_end.get(), 1) != std::string(1, kRecorded)) _exit(1);
  close(pipes.to_it.read_end.release());
  await_start();
  process.run();
  _exit(1);
}

void write_maps(pid_t pid) {
  const std::string proc = "/proc/" + std::to_string(pid);
  const std::string line = "0 " + std::to_string(kFirstId) + " " + std::to_string(kIds) + "\n";
  write_proc(proc + "/uid_map", line);
  write_proc(proc + "/gid_map", line);
}

}  // namespace

std::optional<ProcessOne> read_record(const std::string& sandbox) {
  const auto text = base::read_file_if_exists(record_path(sandbox), 64 << 10);
  if (!text) return {};
  const json::value value = json::parse(*text);
  const json::object& object = value.as_object();
  if (object.at("boot").as_string() != base::boot_id()) return {};
  ProcessOne one;
  one.identity.pid = static_cast<int>(object.at("pid").as_int64());
  one.identity.start_ticks = object.at("start_ticks").to_number<uint64_t>();
  one.overlay = overlay_of(object.at("overlay").as_string());
  one.started = object.at("started").as_bool();
  one.tree = std::string(object.at("tree").as_string());
  one.objects = std::string(object.at("objects").as_string());
  one.limits = json::value_to<std::vector<std::string>>(object.at("limits"));
  return one;
}

void write_record(const std::string& sandbox, const ProcessOne& one) {
  const json::object object{{"pid", one.identity.pid}, {"start_ticks", one.identity.start_ticks},
                            {"boot", base::boot_id()}, {"overlay", overlay_name(one.overlay)},
                            {"started", one.started},  {"tree", one.tree},
                            {"objects", one.objects},  {"limits", json::value_from(one.limits)}};
  base::write_file(record_path(sandbox), json::serialize(object));
}

std::optional<ProcessOne> living(const std::string& sandbox) {
  auto one = read_record(sandbox);
  if (one && !base::process_alive(one->identity)) one.reset();
  return one;
}

void enter_own_user_namespace(uint32_t inside) {
  const std::string uid = std::to_string(geteuid());
  const std::string gid = std::to_string(getegid());
  base::check_allowance(unshare(CLONE_NEWUSER | CLONE_NEWNS), "create a user namespace",
                        "user.max_user_namespaces");
  write_proc("/proc/self/setgroups", "deny");
  write_proc("/proc/self/uid_map", std::to_string(inside) + " " + uid + " 1\n");
  write_proc("/proc/self/gid_map", std::to_string(inside) + " " + gid + " 1\n");
}

void exec_warden(const Handover& handover, const Limits& limits,
                 const std::vector<std::string>& options) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const std::string listener = std::to_string(handover.listener.get());
  const std::string spool = "/proc/self/fd/" + std::to_string(handover.spool.get());
  // As the daemon does here (docs/decisions/0307), whether or not the limit holds.
  const std::string most_left = std::to_string(limits.pids / 2);
  std::vector<const char*> argv{"moorage-warden", "--listen-fd", listener.c_str(), "--spool",
                                spool.c_str(),    "--most-left", most_left.c_str()};
  for (const std::string& option : options) argv.push_back(option.c_str());
  argv.push_back(nullptr);
  const char* environment[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                               nullptr};
  syscall(SYS_execveat, handover.warden.get(), "", argv.data(), environment, AT_EMPTY_PATH);
  _exit(127);
}

void make_recorded_process(const std::string& sandbox, ProcessOne one, const Handover& handover,
                           const NewProcess& process) {
  Pipes pipes{base::make_pipe(), base::make_pipe()};
  const auto pid = static_cast<pid_t>(
      syscall(SYS_clone, process.namespaces | SIGCHLD, nullptr, nullptr, nullptr, 0));
  base::check_allowance(pid, "create the first process of a sandbox", "user.max_user_namespaces");
  if (pid == 0) run_process_one(process, handover, pipes);
  pipes.to_it.read_end.reset();
  pipes.from_it.write_end.reset();
  try {
    if (process.made) process.made(pid);
    one.limits = hold_limits(sandbox, pid, process.limits);
    if (!process.processors.empty()) base::keep_to_processors(pid, process.processors);
    base::write_all(pipes.to_it.write_end.get(), "m");
    const std::string answer = base::read_up_to(pipes.from_it.read_end.get(), 4096);
    if (answer != "k") {
      throw Error(Code::unsupported, answer.empty() ? "process 1 was killed" : answer.substr(1));
    }
    one.identity = base::identify_process(pid);
    write_record(sandbox, one);
    base::write_all(pipes.to_it.write_end.get(), std::string(1, kRecorded));
  } catch (const Error&) {
    kill(pid, SIGKILL);
    throw;
  }
}

base::Processors choose_processors(const std::string& sandbox, const Limits& limits) {
  std::vector<base::Processors> used;
  const std::string all = sandbox.substr(0, sandbox.rfind('/'));
  for (const std::string& name : base::list_directory(all)) {
    const auto one = living(all + "/" + name);
    if (one && all + "/" + name != sandbox) used.push_back(base::processors_of(one->identity.pid));
  }
  return base::choose_processors(base::processors_of(0),
                                 static_cast<double>(limits.cpu_thousandths) / 1000, used);
}

void make_process_one(const RootPlan& wanted, ProcessOne one, const Handover& handover) {
  RootPlan plan = wanted;
  plan.processors = choose_processors(plan.sandbox, plan.limits);
  const bool as_root = plan.overlay == OverlayKind::root;
  if (as_root) {
    base::check_allowance(unshare(CLONE_NEWNS), "create a mount namespace",
                          "user.max_mnt_namespaces");
  } else {
    enter_own_user_namespace(kInsideUser);
  }
  build_root(plan);
  one.overlay = plan.overlay;
  NewProcess process;
  process.limits = plan.limits;
  process.processors = plan.processors;
  process.namespaces = static_cast<unsigned long>(kNamespaces | (as_root ? CLONE_NEWUSER : 0));
  if (as_root) process.made = write_maps;
  process.set_up = [&plan] { set_up(plan); };
  process.lock_down = [as_root] { lock_down(as_root); };
  process.run = [&handover, &plan] { exec_warden(handover, plan.limits, {}); };
  make_recorded_process(plan.sandbox, std::move(one), handover, process);
}

namespace {

std::string namespace_path(const ProcessOne& one, const char* kind) {
  return "/proc/" + std::to_string(one.identity.pid) + "/ns/" + kind;
}

void enter(const ProcessOne& one, const char* kind, int flag) {
  const Fd place = base::open_file(namespace_path(one, kind), O_RDONLY);
  if (!base::process_alive(one.identity))
    throw Error(Code::unavailable, "the sandbox here has ended");
  base::check(setns(place.get(), flag), "enter the sandbox");
}

}  // namespace

bool can_be_entered(const ProcessOne& one) {
  if (one.overlay == OverlayKind::none) return true;
  const char* kind = one.overlay == OverlayKind::user ? "user" : "mnt";
  return Fd(open(namespace_path(one, kind).c_str(), O_RDONLY | O_CLOEXEC)).get() >= 0;
}

void enter_owners_namespace(const ProcessOne& one) {
  if (one.overlay == OverlayKind::user) enter(one, "user", CLONE_NEWUSER);
}

void enter_mounts(const ProcessOne& one) {
  if (one.overlay != OverlayKind::none) enter(one, "mnt", CLONE_NEWNS);
}

}  // namespace moorage::outpost
