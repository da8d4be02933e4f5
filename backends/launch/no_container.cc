// A root that shows the host's, and the warden as a process in it (start.h).
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/files.h"
#include "base/os/mount.h"
#include "start.h"

namespace moorage::launch {
namespace {

constexpr const char* kNewRoot = "/run";  // covered by the new root after it was cloned
constexpr const char* kWarden = "/.moorage/warden";
constexpr const char* kBootstrap = "/.moorage/bootstrap";
constexpr int kAppend = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;

// A copy of the mount at path and all mounts below it.
Fd cloned_with_all_below(const std::string& path) {
  return Fd(base::check_allowance(
      open_tree(AT_FDCWD, path.c_str(), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE),
      "clone the mounts at " + path, "fs.mount-max"));
}

struct Entry {
  std::string path;  // absolute, the same on the host and inside
  Fd mount;          // empty for a link, or a place for a later mount
  std::string link;
  bool directory = true;
};

// Clones the entries of the host's directory one by one: the directory itself is new, so that more
// entries can be added.
void clone_entries(const std::string& directory, const std::set<std::string>& without,
                   std::vector<Entry>& entries) {
  for (const std::string& name : base::list_directory(directory)) {
    const std::string path = (directory == "/" ? "" : directory) + "/" + name;
    struct stat info;
    if (without.contains(path) || lstat(path.c_str(), &info) < 0) continue;
    Entry entry{path, {}, {}, S_ISDIR(info.st_mode)};
    if (S_ISLNK(info.st_mode)) {
      char target[4096];
      ssize_t size = base::check(readlink(path.c_str(), target, sizeof target), "read a link");
      entry.link.assign(target, static_cast<size_t>(size));
    } else {
      entry.mount = cloned_with_all_below(path);
    }
    entries.push_back(std::move(entry));
  }
}

void make_place(const std::string& path, bool directory) {
  if (directory) return base::make_directories(path, 0755);
  base::open_file(path, O_WRONLY | O_CREAT, 0644);
}

void enter_new_root(const Request& request) {
  base::check_allowance(unshare(CLONE_NEWNS), "create a mount namespace",
                        "user.max_mnt_namespaces or fs.mount-max");
  base::set_propagation_slave("/");
  std::vector<Entry> entries;
  clone_entries("/", {"/home", "/workspace", "/.moorage"}, entries);
  if (base::path_exists("/home")) clone_entries("/home", {"/home/user"}, entries);
  for (const auto& [source, target] :
       {std::pair(&request.warden, kWarden), std::pair(&request.bootstrap, kBootstrap)}) {
    entries.push_back({target, base::clone_mount(*source), {}, false});
  }
  for (const std::string& place : request.places) entries.push_back({place, {}, {}, true});

  Fd root = base::make_file_system("tmpfs", {{"size", "1m"}, {"mode", "755"}}, {});
  base::attach_mount(root.get(), kNewRoot);
  for (const Entry& entry : entries) {
    const std::string place = kNewRoot + entry.path;
    base::make_directories(place.substr(0, place.rfind('/')), 0755);
    if (!entry.link.empty()) {
      base::check(symlink(entry.link.c_str(), place.c_str()), "link " + place);
      continue;
    }
    make_place(place, entry.directory);
    if (entry.mount) base::attach_mount(entry.mount.get(), place);
  }
  // pivot_root(2), "pivot_root(".", ".")": the old root is stacked below the new one, then
  // unmounted.
  base::check(chdir(kNewRoot), "change to the new root");
  base::check(syscall(SYS_pivot_root, ".", "."), "change the root");
  base::check(umount2(".", MNT_DETACH), "leave the old root");
  base::check(chdir("/"), "change to the new root");
}

struct Program {
  std::vector<std::string> argv;
  std::vector<std::string> environment{
      "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"};
};

Program warden_of(const Request& request) {
  return {{kWarden, "--bootstrap", kBootstrap, "--subreaper", "--user-base",
           std::to_string(request.first_host_id)}};
}

Program keeper_of(const Request& request) {
  Program keeper{{kWarden, "keeper", "--bootstrap", kBootstrap, "--config", request.link_config}};
  keeper.environment.insert(keeper.environment.end(), request.environment.begin(),
                            request.environment.end());
  return keeper;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  for (std::string& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

[[noreturn]] void become(Program program, const Request& request, int error_pipe) {
  setsid();
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd <= 2; ++fd) dup2(null, fd);
  // Of the keeper: who looks for the cause of a broken link finds it there.
  if (request.mode == "link") dup2(open(request.log.c_str(), kAppend, 0600), STDERR_FILENO);
  const std::vector<char*> argv = pointers(program.argv);
  const std::vector<char*> environment = pointers(program.environment);
  // Other open descriptors are close-on-exec, so a successful exec closes the pipe silently.
  close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  execve(argv[0], argv.data(), environment.data());
  const int error_number = errno;
  [[maybe_unused]] ssize_t written = write(error_pipe, &error_number, sizeof error_number);
  _exit(127);
}

}  // namespace

pid_t start_plain(const Request& request) {
  enter_new_root(request);
  base::Pipe failure = base::make_pipe();
  Program program = request.mode == "link" ? keeper_of(request) : warden_of(request);
  const pid_t pid = base::check(fork(), "create a process");
  if (pid == 0) become(std::move(program), request, failure.write_end.get());
  failure.write_end.reset();
  int error_number = 0;
  const std::string bytes = base::read_up_to(failure.read_end.get(), sizeof error_number);
  if (bytes.empty()) return pid;
  bytes.copy(reinterpret_cast<char*>(&error_number), sizeof error_number);
  base::throw_errno("start " + request.warden, error_number);
}

}  // namespace moorage::launch
