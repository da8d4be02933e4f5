#include "workspace/context/git_author.h"

#include <chrono>
#include <mutex>

#include "base/error.h"
#include "base/os/process.h"
#include "base/parts.h"
#include "workspace/context/account.h"

namespace moorage::workspace {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kDeadline{2'000};
constexpr std::chrono::seconds kFresh{60};
constexpr size_t kMaxValue = 200;
constexpr size_t kMaxOwners = 10'000;

std::map<std::string, std::string> read_author(uint32_t uid) {
  const Account account = account_of(uid);
  base::ProcessOptions options;
  options.deadline = kDeadline;
  options.environment = {{"PATH", "/usr/local/bin:/usr/bin:/bin"},
                         {"HOME", account.home},
                         {"GIT_CONFIG_NOSYSTEM", "1"}};
  std::vector<std::string> argv = account.run_as();
  argv.insert(argv.end(),
              {"git", "config", "--global", "--null", "--get-regexp", "^user\\.(name|email)$"});
  const base::ProcessResult result = base::run_process(argv, options);
  std::map<std::string, std::string> variables;
  if (!result.ok()) return variables;
  // "user.name", a line feed, the value, NUL. The last one counts.
  for (std::string_view entry : base::split(result.output, '\0')) {
    const std::string_view key = base::take_until(entry, '\n');
    if (entry.empty() || entry.size() > kMaxValue) continue;
    const char* what = key == "user.name" ? "NAME" : key == "user.email" ? "EMAIL" : nullptr;
    if (what == nullptr) continue;
    for (const char* role : {"GIT_AUTHOR_", "GIT_COMMITTER_"})
      variables[std::string(role) + what] = std::string(entry);
  }
  return variables;
}

}  // namespace

std::map<std::string, std::string> git_author_of(uint32_t owner_uid) {
  struct Known {
    Clock::time_point when;
    std::map<std::string, std::string> variables;
  };
  static std::mutex mutex;
  static std::map<uint32_t, Known> known;
  {
    const std::lock_guard lock(mutex);
    const auto found = known.find(owner_uid);
    if (found != known.end() && Clock::now() - found->second.when < kFresh)
      return found->second.variables;
  }
  std::map<std::string, std::string> variables;
  try {
    variables = read_author(owner_uid);
  } catch (const base::Error&) {
    // No such user, no git, or a slow home directory: commits are by whom git inside says.
  }
  const std::lock_guard lock(mutex);
  if (known.size() >= kMaxOwners) known.clear();
  known[owner_uid] = {Clock::now(), variables};
  return variables;
}

}  // namespace moorage::workspace
