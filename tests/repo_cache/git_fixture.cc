#include "git_fixture.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <thread>

#include "base/os/files.h"
#include "base/os/process.h"

namespace moorage::repo_cache::test {

namespace fs = std::filesystem;

namespace {

base::ProcessResult run_git(const std::string& directory, const std::vector<std::string>& arguments,
                            const std::string& input,
                            const std::map<std::string, std::string>& environment) {
  std::vector<std::string> argv = {"git", "-c", "protocol.file.allow=always", "-c",
                                   "core.fsync=none"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  base::ProcessOptions options;
  options.directory = directory;
  options.input = input;
  options.max_output_bytes = 256 << 20;
  options.environment = {{"PATH", "/usr/bin:/bin"},
                         {"HOME", "/nonexistent"},
                         {"GIT_CONFIG_NOSYSTEM", "1"},
                         {"GIT_CONFIG_GLOBAL", "/dev/null"},
                         {"GIT_AUTHOR_NAME", "A"},
                         {"GIT_AUTHOR_EMAIL", "a@example.org"},
                         {"GIT_COMMITTER_NAME", "A"},
                         {"GIT_COMMITTER_EMAIL", "a@example.org"},
                         {"LC_ALL", "C"}};
  for (const auto& [name, value] : environment) options.environment[name] = value;
  return base::run_process(argv, options);
}

std::string without_newline(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

int free_port() {
  const base::Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  socklen_t length = sizeof address;
  REQUIRE(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
  return ntohs(address.sin_port);
}

bool listening(int port) {
  const base::Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
}

int count_in(const std::string& path, std::string_view needle) {
  const std::string text = base::read_file_if_exists(path, 1 << 30).value_or("");
  int count = 0;
  for (size_t at = text.find(needle); at != std::string::npos; at = text.find(needle, at + 1))
    ++count;
  return count;
}

}  // namespace

TemporaryDirectory::TemporaryDirectory() {
  const char* base = getenv("TMPDIR");
  path_ = std::string(base ? base : "/tmp") + "/moorage-repo-XXXXXX";
  REQUIRE(mkdtemp(path_.data()) != nullptr);
}

TemporaryDirectory::~TemporaryDirectory() { base::remove_tree(path_); }

std::string git(const std::string& directory, const std::vector<std::string>& arguments,
                const std::string& input, const std::map<std::string, std::string>& environment) {
  const base::ProcessResult result = run_git(directory, arguments, input, environment);
  INFO("git " << arguments.front() << ": " << result.error);
  REQUIRE(result.ok());
  return result.output;
}

int git_status_of(const std::string& directory, const std::vector<std::string>& arguments,
                  const std::string& input) {
  return run_git(directory, arguments, input, {}).exit_code;
}

void put_file(const std::string& path, std::string_view bytes, mode_t mode) {
  fs::create_directories(fs::path(path).parent_path());
  const base::Fd fd = base::open_file(path, O_WRONLY | O_CREAT | O_TRUNC, mode);
  base::write_all(fd.get(), bytes);
  REQUIRE(fchmod(fd.get(), mode) == 0);
}

std::string get_file(const std::string& path) { return base::read_file(path, 1 << 30); }

Upstream::Upstream(const std::string& path) : path_(path) {
  fs::create_directories(path);
  run({"init", "-q", "-b", "main"});
}

std::string Upstream::run(const std::vector<std::string>& arguments,
                          const std::string& input) const {
  return without_newline(git(path_, arguments, input));
}

std::string Upstream::commit(const std::map<std::string, std::string>& files,
                             const std::string& message) {
  for (const auto& [name, bytes] : files) put_file(path_ + "/" + name, bytes);
  return commit_all(message);
}

std::string Upstream::commit_all(const std::string& message) {
  run({"add", "-A", "-f"});
  run({"commit", "-q", "--allow-empty", "-m", message});
  return head();
}

std::string Upstream::head() const { return run({"rev-parse", "HEAD"}); }

GitDaemon::GitDaemon(const std::string& base_path) : trace_path_(base_path + "/trace") {
  port_ = free_port();
  const std::string port = "--port=" + std::to_string(port_);
  const std::string root = "--base-path=" + base_path;
  pid_ = fork();
  REQUIRE(pid_ >= 0);
  if (pid_ == 0) {
    setenv("GIT_TRACE_PACKET", trace_path_.c_str(), 1);
    setenv("GIT_CONFIG_NOSYSTEM", "1", 1);
    setenv("GIT_CONFIG_GLOBAL", "/dev/null", 1);
    setenv("HOME", "/nonexistent", 1);
    setenv("PATH", "/usr/lib/git-core:/usr/bin:/bin", 1);  // it starts itself once per connection
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(nowhere, STDERR_FILENO);
    // Not through `git daemon`, so the pid is the server's own.
    execl("/usr/lib/git-core/git-daemon", "git-daemon", "--reuseaddr", "--listen=127.0.0.1",
          port.c_str(), root.c_str(), "--export-all", nullptr);
    _exit(127);
  }
  for (int i = 0; i < 1000 && !listening(port_); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  REQUIRE(listening(port_));
}

GitDaemon::~GitDaemon() { stop(); }

void GitDaemon::stop() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

std::string GitDaemon::url(const std::string& name) const {
  return "git://127.0.0.1:" + std::to_string(port_) + "/" + name;
}

// Protocol v2 writes this section header once before each pack.
int GitDaemon::packs_sent() const { return count_in(trace_path_, "upload-pack> packfile\n"); }

int GitDaemon::connections() const {
  return count_in(trace_path_, "upload-pack< command=ls-refs\n");
}

std::map<std::string, std::string> snapshot(const std::string& directory) {
  std::map<std::string, std::string> result;
  for (auto it = fs::recursive_directory_iterator(directory);
       it != fs::recursive_directory_iterator(); ++it) {
    if (it.depth() == 0 && it->path().filename() == ".git") {
      it.disable_recursion_pending();
      continue;
    }
    const std::string path = it->path().string();
    struct stat status {};
    REQUIRE(lstat(path.c_str(), &status) == 0);
    std::string what = std::to_string(status.st_mode) + " ";
    if (S_ISLNK(status.st_mode)) what += fs::read_symlink(it->path()).string();
    if (S_ISREG(status.st_mode)) what += get_file(path);
    result.emplace(path.substr(directory.size() + 1), what);
  }
  return result;
}

RepoCacheOptions options_for(const TemporaryDirectory& store, const std::string& file_root) {
  RepoCacheOptions options;
  options.root = store / "repos";
  options.url_policy.file_roots = {file_root};
  return options;
}

base::Error failure_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const base::Error& error) {
    return error;
  }
  FAIL("nothing was thrown");
  return base::Error(base::Code::internal, "unreached");
}

}  // namespace moorage::repo_cache::test
