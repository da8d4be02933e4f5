#include "cli/local/git_calls.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/error.h"

namespace moorage::cli {
namespace {

constexpr std::chrono::minutes kDeadline{60};  // enough to fetch a long history
constexpr size_t kMostOutput = size_t{1} << 30;

// As `git rev-parse --local-env-vars` lists them, and what would change the meaning of ids.
bool redirects(std::string_view name) {
  constexpr std::array<std::string_view, 16> kNames{"GIT_ALTERNATE_OBJECT_DIRECTORIES",
                                                    "GIT_CONFIG",
                                                    "GIT_CONFIG_PARAMETERS",
                                                    "GIT_CONFIG_COUNT",
                                                    "GIT_OBJECT_DIRECTORY",
                                                    "GIT_DIR",
                                                    "GIT_WORK_TREE",
                                                    "GIT_IMPLICIT_WORK_TREE",
                                                    "GIT_GRAFT_FILE",
                                                    "GIT_INDEX_FILE",
                                                    "GIT_REPLACE_REF_BASE",
                                                    "GIT_PREFIX",
                                                    "GIT_SHALLOW_FILE",
                                                    "GIT_COMMON_DIR",
                                                    "GIT_NAMESPACE",
                                                    "GIT_EXTERNAL_DIFF"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

Environment callers_environment() {
  Environment environment;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view entry = *at;
    const size_t equals = entry.find('=');
    if (equals == std::string_view::npos || redirects(entry.substr(0, equals))) continue;
    environment[std::string(entry.substr(0, equals))] = entry.substr(equals + 1);
  }
  environment["LC_ALL"] = "C.UTF-8";  // its words are read here
  environment["GIT_TERMINAL_PROMPT"] = "0";
  environment["GIT_OPTIONAL_LOCKS"] = "0";
  environment["GIT_NO_REPLACE_OBJECTS"] = "1";
  return environment;
}

// After the settings: -c NAME=VALUE
size_t verb_at(const std::vector<std::string>& words) {
  size_t verb = 0;
  while (words.at(verb) == "-c") verb += 2;
  return verb;
}

}  // namespace

base::ProcessResult try_git(const std::vector<std::string>& words, const GitCall& call) {
  // Those of `words` first: a file that they include must not turn hooks on again.
  const auto verb = words.begin() + static_cast<std::ptrdiff_t>(verb_at(words));
  std::vector<std::string> argv{"git"};
  argv.insert(argv.end(), words.begin(), verb);
  argv.insert(argv.end(), {"-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c",
                           "gc.auto=0", "-c", "advice.addEmbeddedRepo=false"});
  argv.insert(argv.end(), verb, words.end());
  base::ProcessOptions options;
  options.environment = callers_environment();
  for (const auto& [name, value] : call.more) options.environment[name] = value;
  options.directory = call.directory;
  options.input = call.input;
  options.input_fd = call.input_fd;
  options.deadline = kDeadline;
  options.max_output_bytes = kMostOutput;
  return base::run_process(argv, options);
}

std::string run_git(const std::vector<std::string>& words, const GitCall& call) {
  base::ProcessResult result = try_git(words, call);
  if (result.ok()) return std::move(result.output);
  throw Error(Code::io,
              "git " + words.at(verb_at(words)) + " failed in " + call.directory + ": " +
                  trimmed(result.error),
              "check there: git status");
}

std::string run_git_line(const std::vector<std::string>& words, const GitCall& call) {
  return trimmed(run_git(words, call));
}

std::string trimmed(std::string text) {
  text.erase(text.find_last_not_of('\n') + 1);
  return text;
}

std::vector<std::string_view> records(std::string_view text) {
  std::vector<std::string_view> found;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\0'), text.size());
    found.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return found;
}

}  // namespace moorage::cli
