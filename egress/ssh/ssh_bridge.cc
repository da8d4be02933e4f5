#include "egress/ssh/ssh_bridge.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "base/parts.h"
#include "egress/broker/http_parser.h"

namespace moorage::egress {
namespace {

constexpr size_t kPiece = 64 << 10;
constexpr size_t kMostInflated = 16 << 20;
constexpr int kAnyWindow = 15 + 16;  // zlib: the format of gzip
constexpr std::string_view kFlush = "0000";

// False: the other end is closed.
bool write_some(const Fd& to, std::string& bytes, bool is_socket) {
  const ssize_t size = is_socket
                           ? send(to.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL)
                           : write(to.get(), bytes.data(), bytes.size());
  if (size < 0) return errno == EAGAIN || errno == EINTR;
  bytes.erase(0, static_cast<size_t>(size));
  return true;
}

// Empty and `ended`: nothing more comes.
std::string read_some(const Fd& from, bool& ended) {
  std::string bytes(kPiece, '\0');
  const ssize_t size = read(from.get(), bytes.data(), bytes.size());
  ended = size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR);
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(size, 0)));
  return bytes;
}

void never_block(const Fd& fd) { fcntl(fd.get(), F_SETFL, O_NONBLOCK); }

std::string packet(const std::string& text) {
  char length[8];
  std::snprintf(length, sizeof length, "%04zx", text.size() + 4);
  return length + text;
}

// The last lines, printable.
std::string last_words(std::string_view text) {
  constexpr size_t kMost = 400;
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  if (text.size() > kMost) text.remove_prefix(text.size() - kMost);
  std::string words;
  for (const char c : text) {
    if (c != '\r') words += c == '\n' || (c >= ' ' && c <= '~') ? c : '?';
  }
  return words;
}

// Whether a process that has closed its output exits, and with 0.
bool ended_well(pid_t process) {
  constexpr int kTries = 100;
  constexpr int kPause_ms = 20;
  int status = 0;
  for (int i = 0; i < kTries; ++i) {
    if (waitpid(process, &status, WNOHANG) == process)
      return WIFEXITED(status) && WEXITSTATUS(status) == 0;
    poll(nullptr, 0, kPause_ms);
  }
  return false;
}

}  // namespace

SshBridge::SshBridge(Fd stream, std::string service, std::vector<std::string> command)
    : stream_(std::move(stream)),
      service_(std::move(service)),
      command_(std::move(command)),
      request_(std::make_unique<HttpParser<true>>()) {
  never_block(stream_);
}

SshBridge::~SshBridge() {
  if (inflating_) inflateEnd(inflating_.get());
}

void SshBridge::run() {
  while (turn()) {
  }
}

bool SshBridge::turn() {
  if (done_ && answer_.empty() && !std::exchange(shut_, true)) shutdown(stream_.get(), SHUT_WR);
  // To the end: a close with unread bytes could overtake the answer.
  const bool takes = done_ || (!sent_all_ && to_ssh_.size() < kMost);
  const bool gives = !answer_.empty();
  const bool gives_ssh = input_ && !to_ssh_.empty();
  const bool takes_ssh = output_ && !done_ && answer_.size() < kMost;
  pollfd all[] = {
      {stream_.get(), static_cast<short>((takes ? POLLIN : 0) | (gives ? POLLOUT : 0)), 0},
      {gives_ssh ? input_.get() : -1, POLLOUT, 0},
      {takes_ssh ? output_.get() : -1, POLLIN, 0},
      {words_ && !done_ ? words_.get() : -1, POLLIN, 0}};
  const auto patience = shut_ ? kLast : kIdle;
  const int ready = poll(all, std::size(all), static_cast<int>(patience.count()));
  if (ready == 0 || (ready < 0 && errno != EINTR)) return false;
  if ((all[0].revents & (POLLERR | POLLHUP)) != 0) return false;
  if ((all[0].revents & POLLOUT) != 0 && !write_some(stream_, answer_, true)) return false;
  if ((all[0].revents & POLLIN) != 0 && !read_stream()) return false;
  // A service that ended early says why in its output.
  if (all[1].revents != 0 && !write_some(input_, to_ssh_, false)) {
    to_ssh_.clear();
    input_.reset();
  }
  if (sent_all_ && to_ssh_.empty()) input_.reset();
  if (all[3].revents != 0) read_words();
  if (all[2].revents != 0 && !done_) read_ssh();
  return true;
}

// False: whoever asked has left.
bool SshBridge::read_stream() {
  bool ended = false;
  const std::string bytes = read_some(stream_, ended);
  if (ended || done_) return !ended;
  pending_ += bytes;
  const bool in_head = !request_->is_header_done();
  if (!request_->parse(pending_).empty()) return false;
  if (in_head && request_->is_header_done() && !request_->parse(pending_).empty()) return false;
  if (!request_->is_header_done()) return true;
  const std::string& method = request_->head.method;
  if (method != "GET" && method != "POST")
    refuse(method + " is not a method of git");
  else if (ssh_ == 0)
    start_ssh();
  if (!done_) take_body();
  return true;
}

void SshBridge::take_body() {
  const std::string bytes = std::exchange(request_->body, {});
  if (!bytes.empty() && same_name(field("Content-Encoding"), "gzip"))
    inflate(bytes);
  else
    to_ssh_ += bytes;
  sent_all_ = request_->is_done() && request_->head.method == "POST";
}

void SshBridge::inflate(std::string_view bytes) {
  if (!inflating_) {
    inflating_ = std::make_unique<z_stream_s>();
    if (inflateInit2(inflating_.get(), kAnyWindow) != Z_OK) return refuse("out of memory");
  }
  inflating_->next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  inflating_->avail_in = static_cast<uInt>(bytes.size());
  int result = Z_OK;
  std::string piece(kPiece, '\0');
  do {
    inflating_->next_out = reinterpret_cast<Bytef*>(piece.data());
    inflating_->avail_out = kPiece;
    result = ::inflate(inflating_.get(), Z_NO_FLUSH);
    to_ssh_.append(piece, 0, kPiece - inflating_->avail_out);
    if (to_ssh_.size() > kMostInflated) return refuse("the compressed request grows too much");
  } while (result == Z_OK && inflating_->avail_out == 0);
  if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
    refuse("the compressed request is damaged");
}

std::string SshBridge::field(std::string_view name) const {
  for (const Field& one : request_->head.fields) {
    if (same_name(one.name, name)) return one.value;
  }
  return {};
}

void SshBridge::start_ssh() {
  base::Pipe input = base::make_pipe();
  base::Pipe output = base::make_pipe();
  base::Pipe words = base::make_pipe();
  const bool asks_version =
      is_fetch() && field("Git-Protocol").find("version=2") != std::string::npos;
  ssh_ = fork();
  if (ssh_ < 0) return refuse("cannot start ssh");
  if (ssh_ == 0) {
    dup2(input.read_end.get(), STDIN_FILENO);
    dup2(output.write_end.get(), STDOUT_FILENO);
    dup2(words.write_end.get(), STDERR_FILENO);
    signal(SIGPIPE, SIG_DFL);
    if (asks_version) setenv("GIT_PROTOCOL", "version=2", 1);
    std::vector<char*> argv;
    for (const std::string& word : command_) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  input_ = std::move(input.write_end);
  output_ = std::move(output.read_end);
  words_ = std::move(words.read_end);
  for (const Fd* end : {&input_, &output_, &words_}) never_block(*end);
}

void SshBridge::read_words() {
  bool ended = false;
  said_ += read_some(words_, ended);
  if (said_.size() > kMostWords) said_.erase(0, said_.size() - kMostWords);
  if (ended) words_.reset();
}

void SshBridge::read_ssh() {
  bool ended = false;
  const std::string bytes = read_some(output_, ended);
  if (!bytes.empty()) take_from_ssh(bytes);
  if (ended && !done_) ssh_ended();
}

// True: refused, as a fetch over HTTP needs requests that are complete in themselves.
bool SshBridge::is_version_missing() {
  if (!is_fetch() || advertisement_.is_version_2()) return false;
  const bool asked = field("Git-Protocol").find("version=2") != std::string::npos;
  refuse(asked
             ? "the host does not offer version 2 of git's protocol over ssh; its sshd must have: "
               "AcceptEnv GIT_PROTOCOL"
             : "fetches over ssh need version 2 of git's protocol: git config --global "
               "protocol.version 2");
  return true;
}

void SshBridge::take_from_ssh(std::string_view bytes) {
  if (advertisement_.is_over()) return add_to_answer(bytes);
  const bool wanted = request_->head.method == "GET";
  const size_t size = advertisement_.take(bytes);
  if (advertisement_.is_broken()) return refuse("the host does not answer like git");
  if (wanted) listed_ += bytes.substr(0, size);
  if (!advertisement_.has_first() && !advertisement_.is_over()) return;
  if (const std::string error = advertisement_.error(); !error.empty())
    return refuse(last_words(error));
  if (is_version_missing()) return;
  if (wanted) {
    if (!answers_) begin_answer();
    add_to_answer(std::exchange(listed_, {}));
    if (advertisement_.is_over()) end_answer();
  } else if (size < bytes.size()) {
    add_to_answer(bytes.substr(size));
  }
}

void SshBridge::ssh_ended() {
  output_.reset();
  if (words_) read_words();
  if (!answers_ && (!advertisement_.is_over() || !ended_well(ssh_))) {
    const std::string words = last_words(said_);
    return refuse(words.empty() ? "ssh ended without a word" : words);
  }
  if (!answers_) begin_answer();
  end_answer();
}

void SshBridge::begin_answer() {
  const bool lists = request_->head.method == "GET";
  answers_ = true;
  answer_ +=
      "HTTP/1.1 200 OK\r\nContent-Type: application/x-" + service_ +
      (lists ? "-advertisement" : "-result") +
      "\r\nCache-Control: no-cache\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
  if (lists && !advertisement_.is_version_2())
    add_to_answer(packet("# service=" + service_ + "\n").append(kFlush));
}

void SshBridge::add_to_answer(std::string_view bytes) {
  if (bytes.empty()) return;
  if (!answers_) begin_answer();
  char size[24];
  std::snprintf(size, sizeof size, "%zx\r\n", bytes.size());
  answer_.append(size).append(bytes).append("\r\n");
}

void SshBridge::end_answer() {
  answer_ += "0\r\n\r\n";
  done_ = true;
}

// In plain text, which git shows. Too late after the head: the answer ends early.
void SshBridge::refuse(const std::string& why) {
  done_ = true;
  if (answers_) return;
  const std::string body = "moorage: git over ssh: " + why + "\n";
  answer_ =
      "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nConnection: close\r\n"
      "Content-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body;
}

int run_ssh_bridge(const std::vector<std::string>& arguments) {
  if (arguments.size() < 2 ||
      (arguments[0] != "git-upload-pack" && arguments[0] != "git-receive-pack")) {
    std::fprintf(stderr, "usage: moorage-egress git-over-ssh SERVICE PROGRAM ARGUMENT...\n");
    return 2;
  }
  Fd stream(base::check(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3), "duplicate the stream"));
  base::Pipe left = base::make_pipe();
  if (base::check(fork(), "create a process") > 0) {
    left.write_end.reset();
    base::read_up_to(left.read_end.get(), 1);  // until the child is in a session of its own
    return 0;
  }
  setsid();
  const Fd null(base::check(open("/dev/null", O_RDWR | O_CLOEXEC), "open /dev/null"));
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) dup2(null.get(), fd);
  left = {};
  signal(SIGPIPE, SIG_IGN);
  alarm(SshBridge::kLongestS);
  SshBridge(std::move(stream), arguments[0], {arguments.begin() + 1, arguments.end()}).run();
  kill(0, SIGKILL);  // ssh is in this group, too
  return 0;
}

}  // namespace moorage::egress
