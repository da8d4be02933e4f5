// Runs the caller's git on his side: with his environment, credentials and settings, without the
// variables that redirect it, without hooks, prompts and file system monitors.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/process.h"

namespace moorage::cli {

using Environment = std::map<std::string, std::string>;

struct GitCall {
  std::string directory;  // where it runs
  Environment more;       // GIT_DIR and others, over the caller's environment
  std::string input;
  int input_fd = -1;  // instead of it
};

// The exit status is data.
base::ProcessResult try_git(const std::vector<std::string>& words, const GitCall& call);
// Its output. Throws io with git's words.
std::string run_git(const std::vector<std::string>& words, const GitCall& call);
// Without the line ends at the end.
std::string run_git_line(const std::vector<std::string>& words, const GitCall& call);

std::string trimmed(std::string text);
// The records of `git ... -z`: each ends with NUL.
std::vector<std::string_view> records(std::string_view text);

}  // namespace moorage::cli
