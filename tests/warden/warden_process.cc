#include "warden_process.h"

#include <dirent.h>
#include <fcntl.h>
#include <openssl/sha.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/error.h"

namespace moorage::test {
namespace {

using Clock = std::chrono::steady_clock;

std::string make_directory() {
  const char* base = ::getenv("TMPDIR");
  std::string path = std::string(base ? base : "/tmp") + "/moorage-warden-XXXXXX";
  REQUIRE(::mkdtemp(path.data()) != nullptr);
  REQUIRE(::chmod(path.c_str(), 0755) == 0);
  return path;
}

std::vector<pid_t> children_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) + "/children");
  std::vector<pid_t> pids;
  for (pid_t child = 0; file >> child;) pids.push_back(child);
  return pids;
}

pid_t spawn_warden(Role role, const std::string& bootstrap, const std::string& spool,
                   const std::vector<std::string>& options) {
  std::vector<const char*> argv;
  if (role == Role::process_one) {
    argv = {"/usr/bin/unshare", "--pid",        "--mount",     "--fork",         "--kill-child",
            "--mount-proc",     MOORAGE_WARDEN, "--bootstrap", bootstrap.c_str()};
  } else {
    argv = {MOORAGE_WARDEN, "--bootstrap", bootstrap.c_str(), "--subreaper"};
  }
  argv.insert(argv.end(), {"--spool", spool.c_str()});
  for (const std::string& option : options) argv.push_back(option.c_str());
  argv.push_back(nullptr);
  pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::execve(argv[0], const_cast<char**>(argv.data()), environ);
    ::_exit(127);
  }
  return pid;
}

}  // namespace

WardenProcess::WardenProcess(Role role, const std::vector<std::string>& options)
    : directory_(make_directory()) {
  base::Fd bootstrap = base::listen_unix(directory_ + "/bootstrap.sock", 0600);
  REQUIRE(::mkdir(spool_path().c_str(), 0700) == 0);
  child_ = spawn_warden(role, directory_ + "/bootstrap.sock", spool_path(), options);
  REQUIRE(base::wait_readable(bootstrap.get(), 10'000 * patience()));
  base::Fd peer(::accept4(bootstrap.get(), nullptr, nullptr, SOCK_CLOEXEC));
  REQUIRE(base::wait_readable(peer.get(), 10'000 * patience()));
  REQUIRE(base::receive_with_fds(peer.get(), 100).bytes == "{\"version\":1}\n");
  base::Fd listener = base::listen_unix(socket_path(), 0600);
  const int fds[] = {listener.get()};
  base::send_with_fds(peer.get(), "{}\n", fds);
  warden_ = role == Role::process_one ? children_of(child_).at(0) : child_;
  REQUIRE(eventually([&] { return client().healthy(1s); }));
}

WardenProcess::~WardenProcess() {
  // Through its own shutdown, so that none of its processes remains on the host.
  try {
    if (child_ > 0) client().shut_down(0ms);
  } catch (const base::Error&) {
    ::kill(warden_, SIGTERM);
  }
  if (child_ > 0 && wait_for_exit(8s) < 0) {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  std::filesystem::remove_all(directory_);
}

std::vector<pid_t> WardenProcess::children() const { return children_of(warden_); }

size_t WardenProcess::open_descriptors() const {
  std::filesystem::directory_iterator entries("/proc/" + std::to_string(warden_) + "/fd");
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

int WardenProcess::wait_for_exit(std::chrono::milliseconds deadline) {
  int status = 0;
  if (!eventually([&] { return ::waitpid(child_, &status, WNOHANG) == child_; }, deadline))
    return -1;
  child_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

std::string Record::kind() const { return std::string(end.at("kind").as_string()); }
int Record::code() const { return static_cast<int>(end.at("code").as_int64()); }
int Record::signal() const { return static_cast<int>(end.at("signal").as_int64()); }
std::string Record::error_text() const {
  return end.contains("error") ? std::string(end.at("error").as_string()) : std::string();
}

std::string Record::failure() const {
  return end.contains("failure") ? std::string(end.at("failure").as_string()) : std::string();
}

Journal::Journal(std::string file) : path(std::move(file)) {
  append_fd =
      base::Fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  REQUIRE(append_fd);
}

Record Journal::read() const {
  base::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  base::JournalReader reader(fd.get());
  Record record;
  uint64_t offset = 0;
  while (auto frame = reader.next()) {
    if (record.ended) {  // only late output follows
      const bool late = base::is_output(frame->header.kind) ||
                        frame->header.kind == base::FrameKind::limit ||
                        frame->header.kind == base::FrameKind::gap;
      REQUIRE(late);
    }
    REQUIRE(frame->header.output_offset == offset);
    if (base::is_output(frame->header.kind)) offset += frame->payload.size();
    const bool first = record.frames++ == 0;
    switch (frame->header.kind) {
      case base::FrameKind::standard_output:
        (record.ended ? record.late : record.output) += frame->payload;
        break;
      case base::FrameKind::standard_error:
        (record.ended ? record.late_error : record.error) += frame->payload;
        break;
      case base::FrameKind::terminal:
        (record.ended ? record.late_terminal : record.terminal) += frame->payload;
        break;
      case base::FrameKind::limit:
        ++record.limit_frames;
        break;
      case base::FrameKind::started:
        record.first_is_started = first;
        record.pid = boost::json::parse(frame->payload).at("pid").to_number<uint32_t>();
        break;
      case base::FrameKind::end:
        record.ended = true;
        record.end = boost::json::parse(frame->payload).as_object();
        break;
      case base::FrameKind::gap:
        offset += base::decode_gap(frame->payload).value().dropped_bytes;
        record.dropped_bytes += base::decode_gap(frame->payload).value().dropped_bytes;
        break;
    }
  }
  return record;
}

Record Journal::wait_for_end(std::chrono::milliseconds deadline) const {
  base::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  base::JournalReader reader(fd.get());
  bool ended = eventually(
      [&] {
        while (auto frame = reader.next()) {
          if (frame->header.kind == base::FrameKind::end) return true;
        }
        return false;
      },
      deadline);
  INFO("no end frame in " << path);
  REQUIRE(ended);
  return read();
}

backends::StartRequest shell(const std::string& script) {
  backends::StartRequest request;
  request.argv = {"/bin/sh", "-c", script};
  request.environment = {{"PATH", "/usr/local/bin:/usr/bin:/bin"}, {"HOME", "/root"}};
  request.directory = "/tmp";
  request.user = "root";
  return request;
}

Record run(WardenProcess& warden, backends::StartRequest request,
           std::chrono::milliseconds deadline) {
  static int serial = 0;
  if (request.tag.empty()) request.tag = "ex_" + std::to_string(++serial);
  Journal journal(warden.directory() + "/" + request.tag);
  request.journal_fd = journal.append_fd.get();
  warden.client().start(request, deadline);
  Record record = journal.wait_for_end(deadline);
  ::unlink(journal.path.c_str());
  return record;
}

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds deadline) {
  const auto end = Clock::now() + patient(deadline);
  while (!condition()) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(200us);
  }
  return true;
}

bool process_lives(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text,
               '\0');  // empty, without an exception, if it ended after the open (ESRCH)
  size_t name_end = text.rfind(')');
  return name_end != std::string::npos && text.at(name_end + 2) != 'Z' &&
         text.at(name_end + 2) != 'X';
}

std::string sha256_hex(std::string_view bytes) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  std::ostringstream text;
  for (unsigned char byte : digest) {
    text << "0123456789abcdef"[byte >> 4] << "0123456789abcdef"[byte & 15];
  }
  return text.str();
}

}  // namespace moorage::test
