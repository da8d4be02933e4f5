#include "workspace/exec/query.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <atomic>
#include <charconv>
#include <thread>

#include "backends/envd_client.h"
#include "base/error.h"
#include "base/log.h"
#include "base/wire/journal.h"
#include "workspace/exec/decide_end.h"

namespace moorage::workspace {
namespace {

constexpr size_t kMaxAnswerBytes = 4096;
constexpr int kMostCommits = 10'000;
constexpr std::chrono::milliseconds kLook{2};
// CPU time that a question costs the warden and that the count in milliseconds leaves out.
constexpr uint64_t kQuestion_usec = 5'000;

// The warden writes a journal into any regular file that is open for append only.
base::Fd make_memory_journal() {
  base::Fd file(base::check(memfd_create("answer", MFD_CLOEXEC), "create a file in memory"));
  base::check(fcntl(file.get(), F_SETFL, O_APPEND), "make a file append-only");
  return file;
}

// Git names its repository to the program that pushes. Prints from the first one that has the new
// commit, and the old one if there is one.
constexpr const char* kCommitsBetween = R"(
old=$1 new=$2 most=$3
export GIT_NO_REPLACE_OBJECTS=1
print() {
  git --git-dir="$1" cat-file -e "$new^{commit}" 2>/dev/null || return
  case $old in
    *[!0]*) git --git-dir="$1" cat-file -e "$old^{commit}" 2>/dev/null || return
       echo "$new"
       git --git-dir="$1" rev-list --topo-order --max-count="$most" "$new" "^$old" ;;
    *) echo "$new" ;;
  esac | git --git-dir="$1" cat-file --batch
  exit 0
}
for process in /proc/[0-9]*; do
  case $(readlink "$process/exe") in */git-remote-http*) ;; *) continue ;; esac
  dir=$(tr '\0' '\n' <"$process/environ" | sed -n 's/^GIT_DIR=//p' | head -n 1)
  case $dir in /*) print "$dir" ;; *) print "$process/cwd/${dir:-.git}" ;; esac
done 2>/dev/null
print /workspace/.git
)";

// Standard output, up to a limit, of a command that exited 0 within the deadline; else nullopt.
// Records no exec: this is not the user's command.
std::optional<std::string> ask_inside(const LiveSandbox& running,
                                      const std::vector<std::string>& argv,
                                      std::chrono::milliseconds deadline,
                                      size_t limit = kMaxAnswerBytes) {
  static std::atomic<uint64_t> number{0};
  const base::Fd journal = make_memory_journal();
  backends::StartRequest start;
  start.tag = "question-" + std::to_string(++number);
  start.argv = argv;
  start.environment = {
      {"PATH", "/usr/local/bin:/usr/bin:/bin"}, {"HOME", "/home/user"}, {"LANG", "C.UTF-8"}};
  start.timeout_ms = deadline.count();
  start.output_limit_bytes = limit;
  start.journal_fd = journal.get();
  const auto until = std::chrono::steady_clock::now() + deadline;
  *running.asked_usec += kQuestion_usec;
  backends::EnvdClient(running.endpoint).start(start, deadline);

  base::JournalReader reader(journal.get());
  std::string answer;
  while (std::chrono::steady_clock::now() < until) {
    const auto frame = reader.next();
    if (!frame) {
      std::this_thread::sleep_for(kLook);
    } else if (frame->header.kind == base::FrameKind::standard_output) {
      answer += frame->payload;
    } else if (frame->header.kind == base::FrameKind::end) {
      const state_db::ExecOutcome end = parse_exec_end(frame->payload);
      *running.asked_usec += static_cast<uint64_t>(end.user_ms + end.system_ms) * 1000;
      if (end.exit_code != 0) return std::nullopt;
      return answer;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<uint64_t> count_unpushed(const LiveSandbox& running,
                                       const std::vector<std::string>& known,
                                       std::chrono::milliseconds deadline) {
  std::vector<std::string> argv{"git",  "-C",         "/workspace", "rev-list", "--count",
                                "HEAD", "--branches", "--not",      "--remotes"};
  argv.insert(argv.end(), known.begin(), known.end());
  try {
    const auto answer = ask_inside(running, argv, deadline);
    uint64_t count = 0;
    if (!answer || std::from_chars(answer->data(), answer->data() + answer->size(), count).ptr ==
                       answer->data()) {
      return std::nullopt;
    }
    return count;
  } catch (const base::Error&) {
    return std::nullopt;  // the sandbox is stopping or has no git: the number is unknown
  }
}

std::optional<std::string> common_ancestor(const LiveSandbox& running, const std::string& tip,
                                           const std::string& remote_branch,
                                           std::chrono::milliseconds deadline) {
  constexpr size_t kIdDigits = 40;
  constexpr const char* kScript =
      "export GIT_NO_REPLACE_OBJECTS=1; cd /workspace && "
      "{ git merge-base HEAD \"$1\" 2>/dev/null || git merge-base HEAD \"$2\"; }";
  try {
    const auto answer =
        ask_inside(running, {"/bin/sh", "-c", kScript, "sh", tip, remote_branch}, deadline);
    if (!answer || answer->size() != kIdDigits + 1) return std::nullopt;
    const std::string id = answer->substr(0, kIdDigits);
    if (id.find_first_not_of("0123456789abcdef") != std::string::npos) return std::nullopt;
    return id;
  } catch (const base::Error&) {
    return std::nullopt;  // as above
  }
}

bool has_commits(const LiveSandbox& running, const std::vector<std::string>& commits,
                 std::chrono::milliseconds deadline) {
  std::vector<std::string> argv{"git", "-C", "/workspace", "rev-list", "--no-walk", "--quiet"};
  argv.insert(argv.end(), commits.begin(), commits.end());
  return ask_inside(running, argv, deadline).has_value();
}

std::optional<std::string> remote_references(const LiveSandbox& running,
                                             std::chrono::milliseconds deadline) {
  constexpr size_t kMost = 8 << 20;
  auto lines = ask_inside(running,
                          {"git", "-C", "/workspace", "for-each-ref",
                           "--format=%(objectname) %(refname)", "refs/remotes/origin", "refs/tags"},
                          deadline, kMost);
  if (lines && lines->size() >= kMost) return std::nullopt;
  return lines;
}

void update_references(const LiveSandbox& running, const std::vector<std::string>& commands,
                       std::chrono::milliseconds deadline) {
  constexpr size_t kMostOfOne = 64 << 10;  // bytes of an argument; Linux allows twice as many
  constexpr size_t kMostWords = 8;
  constexpr const char* kScript =
      "cd /workspace && { said=$(printf %s \"$@\" | git -c core.hooksPath=/dev/null update-ref "
      "--no-deref --stdin 2>&1) || printf '%s' \"$said\"; }";
  auto next = commands.begin();
  while (next != commands.end()) {
    std::vector<std::string> argv{"/bin/sh", "-c", kScript, "sh"};
    const size_t fixed = argv.size();
    for (; next != commands.end(); ++next) {
      if (argv.size() == fixed || argv.back().size() + next->size() > kMostOfOne) {
        if (argv.size() == fixed + kMostWords) break;
        argv.emplace_back();
      }
      argv.back() += *next;
    }
    const auto said = ask_inside(running, argv, deadline);
    if (said && said->empty()) continue;
    throw Error(Code::conflict,
                "git in the sandbox did not move the references" +
                    (said ? ": " + base::escape_for_message(*said) : ""),
                "a git command inside may hold them: try again");
  }
}

void point_remote_head(const LiveSandbox& running, const std::string& target,
                       std::chrono::milliseconds deadline) {
  ask_inside(running,
             {"git", "-C", "/workspace", "-c", "core.hooksPath=/dev/null", "symbolic-ref",
              "refs/remotes/origin/HEAD", target},
             deadline);
}

std::string commits_between(const LiveSandbox& running, const std::string& old_id,
                            const std::string& new_id, std::chrono::milliseconds deadline) {
  try {
    return ask_inside(running,
                      {"/bin/sh", "-c", kCommitsBetween, "sh", old_id, new_id,
                       std::to_string(kMostCommits)},
                      deadline, kMaxCommitBytes)
        .value_or("");
  } catch (const base::Error&) {
    return {};
  }
}

}  // namespace moorage::workspace
