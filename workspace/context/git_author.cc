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
constexpr size_t kMaxOwners = 10'000;

base::GitIdentity read_author(uint32_t uid) {
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
  base::GitIdentity author;
  if (!result.ok()) return author;
  // "user.name", a line feed, the value, NUL. The last one counts.
  for (std::string_view entry : base::split(result.output, '\0')) {
    const std::string_view key = base::take_until(entry, '\n');
    if (!base::is_git_identity(entry)) continue;
    if (key == "user.name") author.name = entry;
    if (key == "user.email") author.email = entry;
  }
  return author;
}

}  // namespace

std::map<std::string, std::string> author_variables(const base::GitIdentity& author) {
  std::map<std::string, std::string> variables;
  for (const std::string role : {"GIT_AUTHOR_", "GIT_COMMITTER_"}) {
    if (!author.name.empty()) variables[role + "NAME"] = author.name;
    if (!author.email.empty()) variables[role + "EMAIL"] = author.email;
  }
  return variables;
}

std::map<std::string, std::string> git_author_of(uint32_t uid) {
  struct Known {
    Clock::time_point when;
    std::map<std::string, std::string> variables;
  };
  static std::mutex mutex;
  static std::map<uint32_t, Known> known;
  {
    const std::lock_guard lock(mutex);
    const auto found = known.find(uid);
    if (found != known.end() && Clock::now() - found->second.when < kFresh)
      return found->second.variables;
  }
  std::map<std::string, std::string> variables;
  try {
    variables = author_variables(read_author(uid));
  } catch (const base::Error&) {
    // No such user, no git, or a slow home directory: commits are by whom git inside says.
  }
  const std::lock_guard lock(mutex);
  if (known.size() >= kMaxOwners) known.clear();
  known[uid] = {Clock::now(), variables};
  return variables;
}

}  // namespace moorage::workspace
