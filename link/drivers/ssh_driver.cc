#include "link/drivers/ssh_driver.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cerrno>
#include <charconv>
#include <utility>

#include "base/error.h"
#include "base/wire/link_config.h"
#include "link/drivers/remote_shell.h"

namespace moorage::link {
namespace {

namespace json = boost::json;
using Clock = std::chrono::steady_clock;

constexpr size_t kMaxOutputBytes = 1 << 20;
constexpr size_t kMaxPathBytes = 1024;
constexpr size_t kMaxFound = 10'000;
constexpr size_t kPieceBytes = 64 << 10;
// Lines that we look for in a script's output: the remote user's shell may print others.
constexpr std::string_view kMark = "moorage: ";

// Enters DIR. A directory that somebody else owns is not used.
constexpr std::string_view kEnterDirectory = R"sh(umask 077
usable() {
  [ -n "$1" ] && [ ! -L "$1" ] && mkdir -p "$1" 2>/dev/null && [ -O "$1" ] &&
    chmod 700 "$1" 2>/dev/null && cd "$1" 2>/dev/null && : > .usable && rm -f .usable
}
case "$1" in "~/"*) set -- "$HOME/${1#"~/"}" ;; esac
if [ -n "$1" ]; then
  usable "$1" || { echo "cannot make or write the directory $1" >&2; exit 3; }
else
  usable "${HOME:+$HOME/.moorage}" || usable "/var/tmp/.moorage-$(id -u)" ||
    { echo "neither ~/.moorage nor /var/tmp can be written" >&2; exit 3; }
fi
)sh";
// Follow it. Print the kind of the machine and DIR; run a program below DIR.
constexpr std::string_view kTellDirectory = R"sh(
echo "moorage: $(uname -s) $(uname -m)"
echo "moorage: $(pwd -P)")sh";
constexpr std::string_view kRunBelow = R"sh(shift; exec "$@" --dir "$(pwd -P)")sh";

// Takes a file from standard input, from the byte where an earlier try was cut. Several may send
// the same file at once: each has a part of its own, and only one gets what a cut one left.
constexpr std::string_view kTakeFile = R"sh(umask 077
file=$1 digest=$2 mode=$3 size=$4 part=$1.part own=$1.part.$$
is() { [ -f "$1" ] && [ "$(sha256sum < "$1" | cut -d' ' -f1)" = "$digest" ]; }
mkdir -p "${file%/*}" || exit 3
if is "$file"; then chmod "$mode" "$file"; echo "moorage: have"; exit 0; fi
mv -f "$part" "$own" 2>/dev/null || : > "$own" || exit 3
echo "moorage: from $(($(wc -c < "$own")))"
cat >> "$own" || exit 3
if ! is "$own"; then
  if [ "$(($(wc -c < "$own")))" -lt "$size" ]; then mv -f "$own" "$part"; exit 0; fi
  rm -f "$own"; echo "moorage: damaged"; exit 0
fi
chmod "$mode" "$own" && { sync "$own" 2>/dev/null || :; }
mv -f "$own" "$file" && echo "moorage: have")sh";

// Runs a command of any release of ours that is there; prints nothing if there is none.
constexpr std::string_view kAnyOutpost = R"sh(dir=$1; shift
for outpost in "$dir"/bin/*/moorage-outpost; do
  if [ -x "$outpost" ]; then exec "$outpost" "$@"; fi
done)sh";

std::string text_field(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  const json::string* text = value ? value->if_string() : nullptr;
  return text ? std::string(*text) : std::string();
}

std::string command_of(std::string_view script, const std::vector<std::string>& arguments) {
  std::string command = "exec sh -c " + shell_quoted(script) + " sh";
  for (const std::string& argument : arguments) command += " " + shell_quoted(argument);
  return command;
}

// True when the socket is ready; throws at the deadline.
void wait_for(int fd, short events, Deadline deadline, const std::string& who) {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) throw Error(Code::deadline_exceeded, who + " did not answer in time");
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::min<int64_t>(left.count(), 60'000)));
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) base::throw_errno("wait for ssh");
  }
}

// Appends what comes; false at the end of the stream.
bool receive(int fd, std::string& text, Deadline deadline, const std::string& who) {
  std::array<char, 16 << 10> piece;
  for (;;) {
    const ssize_t count = ::recv(fd, piece.data(), piece.size(), MSG_DONTWAIT);
    if (count == 0 || (count < 0 && errno == ECONNRESET)) return false;
    if (count > 0) {
      text.append(piece.data(), static_cast<size_t>(count));
      if (text.size() > kMaxOutputBytes) throw Error(Code::corrupted, who + " printed too much");
      return true;
    }
    if (errno != EAGAIN && errno != EINTR) base::throw_errno("read from ssh");
    wait_for(fd, POLLIN, deadline, who);
  }
}

// False: the other side took no more.
bool send_piece(int fd, std::string_view bytes, Deadline deadline, const std::string& who) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count >= 0) {
      bytes.remove_prefix(static_cast<size_t>(count));
    } else if (errno == EAGAIN) {
      wait_for(fd, POLLOUT, deadline, who);
    } else if (errno == EPIPE || errno == ECONNRESET) {
      return false;
    } else if (errno != EINTR) {
      base::throw_errno("write to ssh");
    }
  }
  return true;
}

// Whole lines after our mark, in order.
std::vector<std::string> marked_lines(std::string_view text) {
  std::vector<std::string> lines;
  for (size_t end; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) {
    const std::string_view line = text.substr(0, end);
    if (line.starts_with(kMark)) lines.emplace_back(line.substr(kMark.size()));
  }
  return lines;
}

void throw_if_failed(SshChild& child, Deadline deadline) {
  const int code = child.wait(deadline);
  if (code == 0) return;
  if (auto error = child.reason()) throw Error(*error);
}

// The first marked line of a script that goes on; its answer to our file.
std::string first_line(SshChild& child, std::string& text, Deadline deadline,
                       const std::string& who) {
  for (;;) {
    const std::vector<std::string> lines = marked_lines(text);
    if (!lines.empty()) return lines.front();
    if (!receive(child.stream(), text, deadline, who)) return {};
  }
}

}  // namespace

SshDriver::SshDriver(const DriverOptions& options) {
  const base::SshSettings settings = base::parse_ssh_settings(options.settings);
  target_ = {settings.host, settings.destination, settings.config_file};
  place_ = settings.directory;
  if (target_.name.empty()) target_.name = target_.destination;
}

std::string SshDriver::script(const std::string& text, const std::vector<std::string>& arguments,
                              Deadline deadline) {
  SshChild child(target_, command_of(text, arguments));
  ::shutdown(child.stream(), SHUT_WR);
  std::string output;
  while (receive(child.stream(), output, deadline, target_.name)) {
  }
  throw_if_failed(child, deadline);
  return output;
}

std::string SshDriver::directory(Deadline deadline) {
  if (!directory_.empty()) return directory_;
  const std::vector<std::string> lines =
      marked_lines(script(std::string(kEnterDirectory).append(kTellDirectory), {place_}, deadline));
  utsname here{};
  ::uname(&here);
  const std::string kind = std::string(here.sysname) + " " + here.machine;
  if (lines.size() != 2 || lines[1].size() > kMaxPathBytes || !lines[1].starts_with('/')) {
    throw Error(Code::unsupported, target_.name + " does not run commands of POSIX sh",
                "a login there must start a usual shell");
  }
  if (lines[0] != kind) {
    throw Error(Code::unsupported,
                target_.name + " is another kind of machine than this one, which is " + kind);
  }
  directory_ = lines[1];
  return directory_;
}

Machine SshDriver::make(const Labels& labels, Deadline deadline) {
  Machine machine;
  machine.id = labels.at(kSandboxLabel);
  machine.labels = labels;
  machine.directory = directory(deadline);
  return machine;
}

std::vector<Machine> SshDriver::find(const Labels& labels, Deadline deadline) {
  const std::string dir = directory(deadline);
  const std::string text = script(std::string(kAnyOutpost), {dir, "list", "--dir", dir}, deadline);
  std::vector<Machine> found;
  const size_t begin = text.find("{\"sandboxes\":");
  if (begin == std::string::npos) return found;
  json::parse_options limits;
  limits.max_depth = 8;
  boost::system::error_code error;
  const json::value value = json::parse(std::string_view(text).substr(begin), error, {}, limits);
  const json::value* list = error ? nullptr : value.as_object().if_contains("sandboxes");
  const json::array* rows = list ? list->if_array() : nullptr;
  if (!rows || rows->size() > kMaxFound)
    throw Error(Code::corrupted, "the list of sandboxes on " + target_.name + " is invalid");
  for (const json::value& row : *rows) {
    const json::object* object = row.if_object();
    if (!object) continue;
    Machine machine;
    machine.id = text_field(*object, "name");
    machine.directory = dir;
    machine.labels[kSandboxLabel] = machine.id;
    // "moorage-STORE-sb_7"
    machine.labels[kStoreLabel] = machine.id.substr(0, machine.id.rfind('-'));
    if (const json::value* generation = object->if_contains("generation"))
      machine.labels[kGenerationLabel] = json::serialize(*generation);
    const bool matches = std::all_of(labels.begin(), labels.end(), [&](const auto& label) {
      return machine.labels[label.first] == label.second;
    });
    if (matches && !machine.id.empty()) found.push_back(std::move(machine));
  }
  return found;
}

MachineState SshDriver::state(const Machine& machine, Deadline deadline) {
  const bool there = !find({{kSandboxLabel, machine.id}}, deadline).empty();
  return there ? MachineState::running : MachineState::gone;
}

void SshDriver::end(const Machine& machine, Deadline deadline) {
  const std::string dir = machine.directory.empty() ? directory(deadline) : machine.directory;
  script(std::string(kAnyOutpost), {dir, "remove", "--dir", dir, "--name", machine.id}, deadline);
}

std::unique_ptr<Run> SshDriver::run(const Machine&, const std::vector<std::string>& argv,
                                    Deadline) {
  std::string command = "exec";
  for (const std::string& word : argv) command += " " + shell_quoted(word);
  return std::make_unique<SshChild>(target_, command);
}

std::unique_ptr<Run> SshDriver::run_at_once(const std::vector<std::string>& argv) {
  std::vector<std::string> arguments{place_};
  arguments.insert(arguments.end(), argv.begin(), argv.end());
  return std::make_unique<SshChild>(
      target_, command_of(std::string(kEnterDirectory).append(kRunBelow), arguments));
}

void SshDriver::put(const Machine&, const File& file, Deadline deadline) {
  // A part that an earlier try left may be of another file: the second try starts over.
  if (put_once(file, deadline) || put_once(file, deadline)) return;
  throw Error(Code::corrupted, "the file " + file.path + " arrived damaged on " + target_.name);
}

// False: it arrived damaged, and was removed.
bool SshDriver::put_once(const File& file, Deadline deadline) {
  char mode[8];
  std::snprintf(mode, sizeof mode, "%o", file.mode & 07777);
  struct stat status {};
  base::check(::fstat(file.content, &status), "inspect " + file.path);
  SshChild child(target_, command_of(kTakeFile, {file.path, file.digest, mode,
                                                 std::to_string(status.st_size)}));
  std::string output;
  const std::string answer = first_line(child, output, deadline, target_.name);
  constexpr std::string_view kFrom = "from ";
  if (answer.starts_with(kFrom)) {
    uint64_t offset = 0;
    std::from_chars(answer.data() + kFrom.size(), answer.data() + answer.size(), offset);
    for (;;) {
      const std::string piece = base::read_at(file.content, kPieceBytes, offset);
      if (piece.empty() || !send_piece(child.stream(), piece, deadline, target_.name)) break;
      offset += piece.size();
    }
  }
  ::shutdown(child.stream(), SHUT_WR);
  while (receive(child.stream(), output, deadline, target_.name)) {
  }
  throw_if_failed(child, deadline);
  const std::vector<std::string> lines = marked_lines(output);
  if (!lines.empty() && lines.back() == "damaged") return false;
  if (!lines.empty() && lines.back() == "have") return true;
  throw Error(Code::unavailable, target_.name + " did not take the file " + file.path);
}

}  // namespace moorage::link
