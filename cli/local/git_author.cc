#include "cli/local/git_author.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/os/file_time.h"
#include "base/os/files.h"
#include "base/parts.h"
#include "cli/client/kept_leases.h"
#include "cli/local/git_calls.h"

namespace moorage::cli {
namespace {

constexpr size_t kMaxKeptBytes = 16 << 10;
constexpr int64_t kSettledNs = 2'000'000'000;  // a later change has another time for sure

std::optional<struct stat> stat_of(const std::string& path) {
  struct stat found {};
  if (stat(path.c_str(), &found) != 0) return std::nullopt;
  return found;
}

// No link.
bool is_own(const std::string& path, mode_t type) {
  struct stat found {};
  return lstat(path.c_str(), &found) == 0 && (found.st_mode & S_IFMT) == type &&
         found.st_uid == geteuid();
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Where git looks for the repository's configuration: the file, or "" outside of repositories.
// Absent: other files may count, as in a linked worktree, or ownership decides.
std::optional<std::string> repository_config() {
  std::error_code failed;
  std::filesystem::path directory = std::filesystem::current_path(failed);
  if (failed) return std::nullopt;
  for (;; directory = directory.parent_path()) {
    const std::filesystem::path git = directory / ".git";
    if (base::path_exists(git)) {
      // Git goes on to the parents of a directory that it rejects.
      const bool plain = is_own(directory, S_IFDIR) && is_own(git, S_IFDIR) &&
                         stat_of(git / "HEAD") && !stat_of(git / "commondir");
      if (!plain) return std::nullopt;
      return directory / ".git/config";
    }
    if (stat_of(directory / "HEAD") && stat_of(directory / "objects")) return std::nullopt;  // bare
    if (directory == directory.parent_path()) return "";
  }
}

// The files that git reads here. Absent: they alone do not decide.
std::optional<std::vector<std::string>> config_files() {
  const std::string home = variable("HOME");
  if (home.empty() || home[0] != '/') return std::nullopt;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view entry = *at;
    if (entry.starts_with("GIT_CONFIG") || entry.starts_with("GIT_CEILING_DIRECTORIES=") ||
        entry.starts_with("GIT_DISCOVERY_ACROSS_FILESYSTEM="))
      return std::nullopt;
  }
  const auto repository = repository_config();
  if (!repository) return std::nullopt;
  const std::string given = variable("XDG_CONFIG_HOME");
  const std::string config = given.empty() ? home + "/.config" : given;
  return std::vector<std::string>{"/etc/gitconfig", "/usr/local/etc/gitconfig",
                                  config + "/git/config", home + "/.gitconfig", *repository};
}

// Their state, which changes with their contents, and that of git, which may come later. Empty: no
// answer may be kept for it.
std::string state_of(std::vector<std::string> files) {
  for (const char* program : {"/usr/local/bin/git", "/usr/bin/git"}) files.emplace_back(program);
  const int64_t now = int64_t{std::time(nullptr)} * 1'000'000'000;
  std::string state;
  for (const std::string& file : files) {
    state += file;
    if (const auto found = stat_of(file)) {
      const int64_t changed = base::file_time_ns(found->st_ctim);
      if (changed > now - kSettledNs) return "";
      for (const uint64_t part :
           {uint64_t{found->st_dev}, uint64_t{found->st_ino}, static_cast<uint64_t>(found->st_size),
            static_cast<uint64_t>(changed)})
        state += " " + std::to_string(part);
    }
    state += "\n";
  }
  return state;
}

// Included files, and a worktree's own, count too.
bool names_other_files(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    std::string text = base::read_file_if_exists(file).value_or("");
    for (char& c : text)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (text.find("[include") != text.npos || text.find("worktreeconfig") != text.npos) return true;
  }
  return false;
}

// Where this user keeps the answer; empty: nowhere, as in a home that does not exist, or in another
// user's directory (sudo keeps HOME).
std::string kept_path() {
  const std::string home = state_home();
  if (home.empty()) return "";
  const std::filesystem::path given = variable("XDG_STATE_HOME");
  const std::filesystem::path above =
      given.is_absolute() ? given.parent_path() : std::filesystem::path(variable("HOME"));
  const std::string place = home + "/moorage";
  const bool is_ours =
      is_own(above, S_IFDIR) && (!base::path_exists(place) || is_own(place, S_IFDIR));
  return is_ours ? place + "/git-author" : "";
}

std::optional<std::string> kept_text(const std::string& path) {
  if (!is_own(path, S_IFREG)) return std::nullopt;
  return base::read_file_if_exists(path, kMaxKeptBytes);
}

std::optional<base::GitIdentity> checked(std::string_view name, std::string_view email) {
  if (!base::is_git_identity(name) || !base::is_git_identity(email)) return std::nullopt;
  return base::GitIdentity{std::string(name), std::string(email)};
}

struct Answer {
  std::optional<base::GitIdentity> author;
  bool is_sure = false;  // git works here
};

Answer ask_git() {
  constexpr int kNoneSet = 1;
  base::ProcessResult result;
  try {
    result = try_git({"config", "--null", "--get-regexp", "^user\\.(name|email)$"},
                     {.directory = ".", .more = {}, .input = {}});
  } catch (const Error&) {
    return {};  // no git here
  }
  if (!result.ok())
    return {.author = {}, .is_sure = result.signal == 0 && result.exit_code == kNoneSet};
  std::string name;
  std::string email;
  for (std::string_view entry : records(result.output)) {
    const std::string_view key = base::take_until(entry, '\n');
    if (key == "user.name") name = entry;
    if (key == "user.email") email = entry;
  }
  return {.author = checked(name, email), .is_sure = true};
}

}  // namespace

std::optional<base::GitIdentity> git_author() {
  const auto files = config_files();
  const std::string state = files ? state_of(*files) : "";
  const std::string path = state.empty() ? "" : kept_path();
  if (path.empty()) return ask_git().author;
  try {
    const auto kept = kept_text(path);
    if (kept && kept->starts_with(state)) {
      std::string_view email = std::string_view(*kept).substr(state.size());
      const std::string_view name = base::take_until(email, '\n');
      return checked(name, base::take_until(email, '\n'));
    }
    const auto [author, is_sure] = ask_git();
    if (!is_sure || names_other_files(*files) || state_of(*files) != state) return author;
    base::make_directories(path.substr(0, path.rfind('/')), 0700);
    base::write_file(path, state + (author ? author->name + "\n" + author->email + "\n" : "\n\n"));
    return author;
  } catch (const Error&) {
    return ask_git().author;  // cannot be kept here; the answer is the same
  }
}

}  // namespace moorage::cli
