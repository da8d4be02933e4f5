#include "warden/requests.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>

#include "base/error.h"
#include "base/parts.h"
#include "warden/io/connect_protocol.h"

namespace moorage::warden {
namespace {

namespace json = boost::json;

constexpr size_t kMaxDepth = 32;
constexpr size_t kMaxTagBytes = 128;
// 2 MiB of strings, the kernel's limit, are fewer: each takes its NUL and a pointer.
constexpr size_t kMaxStrings = 1 << 18;

[[noreturn]] void refuse(std::string message) {
  throw Error(Code::invalid_argument, std::move(message));
}

std::string text_of(const json::value& value, std::string_view name) {
  if (!value.is_string()) refuse(std::string(name) + " must be a string");
  const json::string& text = value.get_string();
  if (text.find('\0') != json::string::npos) refuse(std::string(name) + " contains a zero byte");
  return std::string(text);
}

uint64_t number_header(const HttpRequest& request, const std::string& name) {
  auto text = request.header(name);
  if (!text) return 0;
  uint64_t number = 0;
  auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc() || end != text->data() + text->size())
    refuse(name + " must be a number");
  return number;
}

std::vector<std::string> read_arguments(const json::object& process) {
  std::vector<std::string> argv;
  const json::value* command = process.if_contains("cmd");
  if (!command) refuse("process.cmd is missing");
  argv.push_back(text_of(*command, "process.cmd"));
  if (argv[0].empty()) refuse("process.cmd is empty");
  const json::value* arguments = process.if_contains("args");
  if (!arguments) return argv;
  if (!arguments->is_array() || arguments->get_array().size() > kMaxStrings) {
    refuse("process.args must be an array of at most " + std::to_string(kMaxStrings));
  }
  for (const json::value& argument : arguments->get_array()) {
    argv.push_back(text_of(argument, "process.args"));
  }
  return argv;
}

std::vector<std::string> read_environment(const json::object& process) {
  const json::value* variables = process.if_contains("envs");
  if (!variables) return {};
  if (!variables->is_object() || variables->get_object().size() > kMaxStrings) {
    refuse("process.envs must be an object of at most " + std::to_string(kMaxStrings));
  }
  std::vector<std::string> environment;
  for (const auto& [name, value] : variables->get_object()) {
    if (name.empty() || name.find_first_of(std::string_view("=\0", 2)) != json::string_view::npos) {
      refuse("process.envs has an invalid variable name");
    }
    environment.push_back(std::string(name) + "=" + text_of(value, "process.envs"));
  }
  return environment;
}

// The first component after resolving "." and ".." as text: "/tmp/../proc/self" begins with "proc".
std::string first_component(const std::string& path) {
  std::vector<std::string_view> components;
  for (const std::string_view name : base::split(path, '/')) {
    if (name == ".." && !components.empty()) components.pop_back();
    if (!name.empty() && name != "." && name != "..") components.push_back(name);
  }
  return std::string(components.empty() ? "" : components.front());
}

// Absolute; relative and ~ as in E2B. Refuses paths below /proc, whose magic links lead elsewhere.
std::string read_directory(const json::object& process, const User& user) {
  const json::value* cwd = process.if_contains("cwd");
  std::string path = cwd ? text_of(*cwd, "process.cwd") : std::string();
  const std::string home(user.home);
  if (path.empty() || path == "~") return home;
  if (path.starts_with("~/")) path = home + path.substr(1);
  if (path[0] != '/') path = home + "/" + path;
  if (first_component(path) == "proc") {
    refuse("process.cwd is below /proc; choose a real directory");
  }
  return path;
}

User read_user(const HttpRequest& request) {
  std::string name = request.header("moorage-user").value_or("");
  auto authorization = request.header("authorization");
  if (name.empty() && authorization && authorization->starts_with("Basic ")) {
    std::string pair = decode_base64(std::string_view(*authorization).substr(6));
    name = pair.substr(0, pair.find(':'));
  }
  if (name.empty()) return kUsers[0];
  for (const User& user : kUsers) {
    if (user.name == name) return user;
  }
  refuse("unknown user " + name + "; use user or root");
}

// An exec's journal must be new: a repeated Start must not run again.
void check_journal(const Fd& journal) {
  struct stat status {};
  if (::fstat(journal.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    refuse("the journal is not a regular file");
  }
  int flags = ::fcntl(journal.get(), F_GETFL);
  if ((flags & O_ACCMODE) == O_RDONLY || !(flags & O_APPEND)) {
    refuse("the journal is not open for appending");
  }
  if (status.st_size != 0)
    throw Error(Code::already_exists, "the journal is not empty: this exec has already run");
}

void read_descriptors(HttpRequest& request, StartRequest& start) {
  const bool has_kill = request.header("moorage-kill-fd").value_or("0") == "1";
  const size_t fixed = 1 + (has_kill ? 1 : 0);
  if (request.fds.size() < fixed) refuse("descriptors are missing: journal, kill, join...");
  start.journal = std::move(request.fds[0]);
  check_journal(start.journal);
  if (has_kill) start.options.kill_fd = std::move(request.fds[1]);
  start.command.subreaper = !has_kill;
  std::move(request.fds.begin() + static_cast<ptrdiff_t>(fixed), request.fds.end(),
            std::back_inserter(start.command.join_fds));
}

// No descriptors: the file's name is the tag.
void read_spool(const HttpRequest& request, StartRequest& start) {
  if (!request.fds.empty()) refuse("a command with a spool takes no descriptors");
  const std::string& tag = start.options.tag;
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
  if (tag.empty() || tag[0] == '.' || tag.find_first_not_of(kLetters) != std::string::npos) {
    refuse("a command with a spool needs a tag of letters, digits, '_', '-' and '.'");
  }
  start.spool = true;
}

}  // namespace

Fd create_spool_file(int spool, const std::string& tag) {
  if (spool < 0) refuse("this warden has no spool: start it with --spool DIR");
  Fd file(::openat(spool, tag.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file && errno == EEXIST)
    throw Error(Code::already_exists, "the spool has this tag: this exec has already run");
  if (!file) base::throw_errno("create a file in the spool");
  // Held as long as something may be written: its reader learns when the late output is over.
  base::check(::flock(file.get(), LOCK_EX | LOCK_NB), "lock a file in the spool");
  return file;
}

json::object parse_object(std::string_view text) {
  if (text.empty()) return {};
  json::parse_options options;
  options.max_depth = kMaxDepth;
  options.allow_invalid_utf8 = true;  // arguments and environment are bytes, not text
  boost::system::error_code error;
  json::value value = json::parse(text, error, {}, options);
  if (error || !value.is_object()) refuse("the request is not a JSON object of 1-32 levels");
  return std::move(value.get_object());
}

const json::object& member_object(const json::object& body, std::string_view name) {
  const json::value* value = body.if_contains(name);
  if (!value || !value->is_object()) refuse(std::string(name) + " is missing");
  return value->get_object();
}

// proto3 JSON writes int64 as a string; a number is accepted too.
std::optional<uint64_t> read_offset(const json::object& body) {
  const json::value* value = body.if_contains("offset");
  if (!value) return std::nullopt;
  if (value->is_int64() && value->get_int64() >= 0) return value->get_int64();
  if (value->is_string() && !value->get_string().empty() && value->get_string().size() < 20) {
    std::string text(value->get_string());
    if (text.find_first_not_of("0123456789") == std::string::npos) return std::stoull(text);
  }
  refuse("offset is not a valid number of bytes");
}

std::optional<int> signal_number(std::string_view name) {
  int number = 0;
  auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error == std::errc() && end == name.data() + name.size()) {
    if (number < 1 || number > SIGRTMAX) return std::nullopt;
    return number;
  }
  if (name.starts_with("SIGNAL_")) name.remove_prefix(7);
  if (name.starts_with("SIG")) name.remove_prefix(3);
  for (int signal = 1; signal < NSIG; ++signal) {
    const char* known = ::sigabbrev_np(signal);
    if (known && name == known) return signal;
  }
  return std::nullopt;
}

TerminalSize read_terminal_size(const json::object& pty) {
  const json::value* size = pty.if_contains("size");
  if (!size || !size->is_object()) return {};
  auto read = [&](std::string_view name, uint16_t standard) -> uint16_t {
    const json::value* value = size->get_object().if_contains(name);
    if (!value) return standard;
    if (!value->is_int64() || value->get_int64() < 1 || value->get_int64() > 65535) {
      refuse("pty.size." + std::string(name) + " must be between 1 and 65535");
    }
    return static_cast<uint16_t>(value->get_int64());
  };
  return {read("cols", 80), read("rows", 24)};
}

std::chrono::seconds keepalive_interval(const HttpRequest& request) {
  uint64_t seconds = number_header(request, "keepalive-ping-interval");
  return std::chrono::seconds(seconds == 0 ? 90 : std::min<uint64_t>(seconds, 3600));
}

StartRequest read_start_request(const json::object& body, HttpRequest& request) {
  const json::object& process = member_object(body, "process");
  StartRequest start;
  start.command.user = read_user(request);
  start.command.argv = read_arguments(process);
  start.command.environment = read_environment(process);
  start.command.directory = read_directory(process, start.command.user);
  start.keepalive = keepalive_interval(request);
  if (const json::value* tag = body.if_contains("tag")) start.options.tag = text_of(*tag, "tag");
  if (start.options.tag.size() > kMaxTagBytes) refuse("the tag is too long");
  const json::value* pty = body.if_contains("pty");
  if (pty && pty->is_object()) start.command.terminal = read_terminal_size(pty->get_object());
  // As in E2B: absent means a pipe.
  const json::value* input = body.if_contains("stdin");
  start.command.input = !input || !input->is_bool() || input->get_bool();
  const json::value* merged = body.if_contains("merge_output");
  start.command.merged = merged && merged->is_bool() && merged->get_bool();
  constexpr uint64_t kMaxTimeoutMs = 366ULL * 24 * 3600 * 1000;
  uint64_t timeout_ms = number_header(request, "connect-timeout-ms");
  start.options.timeout_ms = static_cast<int64_t>(std::min(timeout_ms, kMaxTimeoutMs));
  start.room = {number_header(request, "moorage-output-limit"),
                number_header(request, "moorage-journal-room")};
  const bool journal = request.header("moorage-journal").value_or("0") == "1";
  const bool spool = request.header("moorage-spool").value_or("0") == "1";
  if (journal && spool) refuse("give either a journal or the spool");
  if (journal) read_descriptors(request, start);
  if (spool) read_spool(request, start);
  return start;
}

}  // namespace moorage::warden
