#include "machine.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/little_endian.h"
#include "base/os/files.h"
#include "base/os/process.h"
#include "base/wire/journal.h"
#include "warden/raw_http.h"

namespace moorage::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

void become(uid_t user) {
  if (user == kRoot) return;
  if (setgroups(0, nullptr) != 0 || setresgid(user, user, user) != 0 ||
      setresuid(user, user, user) != 0)
    _exit(126);
}

pid_t start_as(uid_t user, const std::vector<std::string>& words, int input, int output) {
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid > 0) return pid;
  become(user);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(input, 0);
  dup2(output, 1);
  close_range(3, ~0U, 0);
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  char* environment[] = {nullptr};
  execve(argv[0], argv.data(), environment);
  _exit(127);
}

pid_t number_in_file(const std::string& path) {
  std::ifstream file(path);
  pid_t pid = 0;
  file >> pid;
  return pid;
}

}  // namespace

bool eventually(const std::function<bool()>& condition, milliseconds deadline) {
  const auto end = Clock::now() + tests::patient(deadline);
  while (!condition()) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(2ms);
  }
  return true;
}

Machine::Machine(uid_t user) : user_(user) {
  directory_ = "/var/tmp/moorage-outpost-XXXXXX";
  REQUIRE(mkdtemp(directory_.data()) != nullptr);
  REQUIRE(std::filesystem::create_directories(directory_ + "/bin/0"));
  for (const char* name : {"moorage-outpost", "moorage-warden"})
    std::filesystem::copy_file(std::string(MOORAGE_BIN) + "/" + name, program(name));
  for (const char* path :
       {"", "/bin", "/bin/0", "/bin/0/moorage-outpost", "/bin/0/moorage-warden"}) {
    REQUIRE(chown((directory_ + path).c_str(), user, user) == 0);
    REQUIRE(chmod((directory_ + path).c_str(), 0700) == 0);
  }
}

Machine::~Machine() {
  for (const std::string& name : base::list_directory_if_exists(directory_ + "/sandboxes"))
    run({"remove", "--dir", directory_, "--name", name});
  CHECK(eventually([this] { return processes().empty(); }));
  std::filesystem::remove_all(directory_);
}

std::string Machine::run(const std::vector<std::string>& arguments, int exit_code) const {
  base::Pipe pipe = base::make_pipe();
  const Fd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  std::vector<std::string> words{program()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const pid_t pid = start_as(user_, words, null.get(), pipe.write_end.get());
  pipe.write_end.reset();
  std::string output = base::read_up_to(pipe.read_end.get(), 1 << 20);
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  CAPTURE(words[1]);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == exit_code);
  return output;
}

std::string Machine::talk(const std::vector<std::string>& arguments, std::string_view first,
                          std::string_view second) const {
  base::Pipe input = base::make_pipe();
  base::Pipe output = base::make_pipe();
  std::vector<std::string> words{program()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const pid_t pid = start_as(user_, words, input.read_end.get(), output.write_end.get());
  output.write_end.reset();
  base::write_all(input.write_end.get(), first);
  CHECK(base::wait_readable(output.read_end.get(), 10'000 * tests::patience()));
  base::write_all(input.write_end.get(), second);
  std::string answer = base::read_up_to(output.read_end.get(), 1 << 20);
  waitpid(pid, nullptr, 0);
  return answer;
}

pid_t Machine::serve(const std::string& name) const {
  const pid_t pid = number_in_file(sandbox(name) + "/serve.pid");
  return pid > 0 && base::process_alive(base::identify_process(pid)) ? pid : 0;
}

pid_t Machine::process_one(const std::string& name) const {
  const auto text = base::read_file_if_exists(sandbox(name) + "/init.json");
  if (!text) return 0;
  const auto pid = static_cast<pid_t>(json::parse(*text).at("pid").as_int64());
  return base::process_alive(base::identify_process(pid)) ? pid : 0;
}

std::vector<pid_t> Machine::processes() const {
  std::vector<pid_t> found;
  for (const std::string& name : base::list_directory("/proc")) {
    const int pid = std::atoi(name.c_str());
    if (pid <= 0) continue;
    // Its programs, also as process 1 in a sandbox.
    char program[4096];
    const ssize_t size = readlink(("/proc/" + name + "/exe").c_str(), program, sizeof program);
    const bool is_ours =
        size > 0 &&
        std::string_view(program, static_cast<size_t>(size)).starts_with(directory_ + "/");
    if (is_ours && base::process_alive(base::identify_process(pid))) found.push_back(pid);
  }
  return found;
}

PackText::PackText()
    : writer_(std::make_unique<packs::PackWriter>(
          [this](std::string_view bytes) { bytes_ += bytes; })) {}

namespace {

packs::Node node(const std::string& path, packs::NodeType type, uint32_t mode) {
  packs::Node made;
  made.path = path;
  made.type = type;
  made.mode = mode;
  made.uid = made.gid = 1000;
  made.mtime = {1'700'000'000, 0};
  return made;
}

}  // namespace

PackText& PackText::directory(const std::string& path, uint32_t mode) {
  writer_->entry(node(path, packs::NodeType::directory, mode));
  return *this;
}

PackText& PackText::file(const std::string& path, const std::string& content, uint32_t mode) {
  packs::Node made = node(path, packs::NodeType::file, mode);
  made.size = content.size();
  writer_->entry(made);
  constexpr size_t kPiece = 60 << 10;
  for (size_t at = 0; at < content.size(); at += kPiece)
    writer_->piece(at, std::string_view(content).substr(at, kPiece));
  writer_->end_pieces();
  return *this;
}

PackText& PackText::link(const std::string& path, const std::string& target) {
  packs::Node made = node(path, packs::NodeType::symlink, 0777);
  made.target = target;
  writer_->entry(made);
  return *this;
}

PackText& PackText::pipe(const std::string& path, mode_t mode) {
  writer_->entry(node(path, packs::NodeType::fifo, mode));
  return *this;
}

PackText& PackText::removal(const std::string& path) {
  writer_->removal(path);
  return *this;
}

std::string PackText::finish() {
  writer_->finish();
  return bytes_;
}

Changes read_pack(const std::string& bytes) {
  struct Collector : packs::PackVisitor {
    Changes changes;
    std::string last;
    void entry(const packs::Node& made) override {
      last = made.path;
      changes.entries[last] = {made, {}};
    }
    void growth(const std::string&) override { FAIL("no growth is expected"); }
    void piece(uint64_t offset, std::string_view text) override {
      std::string& content = changes.entries[last].content;
      content.resize(std::max(content.size(), static_cast<size_t>(offset)));
      content += text;
    }
    void end_pieces() override {}
    void removal(const std::string& path) override { changes.removals.push_back(path); }
  };
  if (bytes.empty()) return {};
  Fd file(memfd_create("pack", MFD_CLOEXEC));
  base::write_all(file.get(), bytes);
  const packs::PackReader reader(std::move(file));
  reader.verify();
  Collector collector;
  reader.read_changes(collector);
  return collector.changes;
}

Link::Link(const Machine& machine, uint64_t generation, const std::string& name) {
  int sockets[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
  socket_ = Fd(sockets[0]);
  const Fd theirs(sockets[1]);
  connector_ = start_as(machine.user(),
                        {machine.program(), "connect", "--dir", machine.directory(), "--name", name,
                         "--generation", std::to_string(generation)},
                        theirs.get(), theirs.get());
}

Link::~Link() {
  socket_.reset();
  kill(connector_, SIGKILL);
  waitpid(connector_, nullptr, 0);
}

void Link::flush() {
  std::string& output = mux_.output();
  while (!output.empty() && !over_) {
    const ssize_t count =
        ::send(socket_.get(), output.data(), output.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) output.erase(0, static_cast<size_t>(count));
    if (count < 0 && errno == EPIPE) over_ = true;
    if (count < 0 && errno != EAGAIN && errno != EINTR) return;
    if (count < 0) pump(10ms);
  }
}

bool Link::pump(milliseconds wait) {
  if (over_ || !base::wait_readable(socket_.get(), static_cast<int>(wait.count()))) return !over_;
  std::string room(64 << 10, '\0');
  const ssize_t count = recv(socket_.get(), room.data(), room.size(), MSG_DONTWAIT);
  if (count <= 0) {
    over_ = true;
    return false;
  }
  std::string_view bytes(room.data(), static_cast<size_t>(count));
  while (const auto frame = mux_.next(bytes)) {
    Received& received = received_[frame->channel];
    if (frame->kind == base::MuxKind::data) {
      received.bytes += frame->payload;
      mux_.consumed(frame->channel, frame->payload.size());
    }
    if (frame->kind == base::MuxKind::end) received.ended = true;
    if (frame->kind == base::MuxKind::reset)
      received.error = base::mux_reset_reason(frame->payload);
  }
  return true;
}

uint32_t Link::open(const json::object& request) {
  const uint32_t channel = mux_.open(json::serialize(request));
  flush();
  return channel;
}

void Link::send(uint32_t channel, std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t room = std::min(mux_.room(channel), base::kMuxMaxPayload);
    if (room == 0) {
      if (!mux_.is_open(channel) || !pump(5s)) return;  // the answer says why
      continue;
    }
    mux_.send(channel, bytes.substr(0, room));
    bytes.remove_prefix(std::min(room, bytes.size()));
    flush();
  }
}

void Link::reset(uint32_t channel) {
  mux_.reset(channel, Error(Code::unavailable, "not wanted any more"));
  flush();
}

std::string Link::finish(uint32_t channel, milliseconds deadline) {
  const auto end = Clock::now() + tests::patient(deadline);
  for (;;) {
    Received& received = received_[channel];
    if (received.error) throw Error(*received.error);
    if (received.ended) return std::move(received.bytes);
    if (Clock::now() > end) throw Error(Code::deadline_exceeded, "no end of a channel");
    flush();
    if (!pump(20ms)) throw Error(Code::unavailable, "the stream ended");
  }
}

const std::string& Link::wait(uint32_t channel,
                              const std::function<bool(const std::string&)>& enough,
                              milliseconds deadline) {
  const auto end = Clock::now() + tests::patient(deadline);
  for (;;) {
    Received& received = received_[channel];
    if (received.error) throw Error(*received.error);
    if (enough(received.bytes)) return received.bytes;
    if (Clock::now() > end) throw Error(Code::deadline_exceeded, "not enough came");
    flush();
    if (!pump(20ms)) throw Error(Code::unavailable, "the stream ended");
  }
}

json::object Link::call(const json::object& request, milliseconds deadline) {
  const uint32_t channel = open(request);
  end(channel);
  return json::parse(finish(channel, deadline)).as_object();
}

json::object Link::call_with(const json::object& request, std::string_view bytes) {
  const uint32_t channel = open(request);
  send(channel, bytes);
  end(channel);
  return json::parse(finish(channel, 120s)).as_object();  // a tree is synced, also on a busy disk
}

json::object Link::hello(uint64_t generation) {
  return call({{"what", "hello"},
               {"protocol", {{"oldest", 1}, {"newest", 1}}},
               {"generation", generation}});
}

json::object Link::prepare_and_start(const std::string& tree) {
  json::object answer =
      call({{"what", "prepare"}, {"tree", tree}, {"objects", ""}, {"certificates", ""}});
  call({{"what", "start"}});
  return answer;
}

std::string Link::sync(uint64_t acknowledged) {
  const uint32_t channel = open({{"what", "sync"}, {"acknowledged", acknowledged}});
  end(channel);
  return finish(channel);
}

std::string Link::start(const std::string& tag, const std::string& script,
                        const std::string& user) {
  json::object process{{"cmd", "/bin/sh"}, {"args", {"-c", script}}, {"cwd", "/workspace"}};
  process["envs"] = {{"PATH", "/usr/local/bin:/usr/bin:/bin"}, {"HOME", "/home/user"}};
  const std::string body = json::serialize(
      json::object{{"process", std::move(process)}, {"tag", tag}, {"stdin", false}});
  const uint32_t channel = open({{"what", "http"}});
  send(channel, stream("Start", body, "Moorage-Spool: 1\r\nMoorage-User: " + user + "\r\n"));
  const std::string answer = wait(channel, [](const std::string& text) {
    return text.find("\r\n0\r\n\r\n") != std::string::npos;
  });
  end(channel);
  return answer;
}

std::string Link::output(const std::string& tag, milliseconds deadline) {
  const uint32_t channel = open({{"what", "journal"}, {"tag", tag}, {"offset", 0}});
  const JournalText text = read_journal(finish(channel, deadline));
  end(channel);
  CHECK(text.whole);
  CHECK(text.ended);
  if (text.code != 0) UNSCOPED_INFO("exit code " << text.code << ": " << text.output);
  CHECK(text.code == 0);
  return text.output;
}

std::string Link::run(const std::string& tag, const std::string& script, const std::string& user) {
  CHECK_THAT(start(tag, script, user), Catch::Contains("\"pid\""));
  return output(tag);
}

void Link::raw(std::string_view bytes) {
  flush();
  ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

bool Link::ended(milliseconds deadline) {
  const auto end = Clock::now() + tests::patient(deadline);
  while (pump(20ms)) {
    if (Clock::now() > end) return false;
  }
  return true;
}

JournalText read_journal(std::string_view bytes) {
  JournalText text;
  while (bytes.size() >= base::kFrameHeaderBytes) {
    const auto size = base::number_at<uint32_t>(bytes.data() + 8);
    if (!bytes.starts_with("MJ1\n") || bytes.size() < base::kFrameHeaderBytes + size) break;
    const auto kind = static_cast<base::FrameKind>(bytes[4]);
    const std::string_view payload = bytes.substr(base::kFrameHeaderBytes, size);
    if (base::is_output(kind)) text.output += payload;
    if (kind == base::FrameKind::started) text.started = true;
    if (kind == base::FrameKind::end) {
      text.ended = true;
      text.code = static_cast<int>(json::parse(payload).at("code").as_int64());
    }
    bytes.remove_prefix(base::kFrameHeaderBytes + size);
  }
  text.whole = bytes.empty();
  return text;
}

}  // namespace moorage::test
