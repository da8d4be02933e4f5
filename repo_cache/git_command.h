// The system git as a child process, for transport only: no hooks, only our configuration, no
// prompt, and never in an untrusted repository. Its error output becomes an Error with a useful
// code.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/os/process.h"
#include "repo_cache/repo_cache.h"

namespace moorage::repo_cache {

class Deadline {
 public:
  explicit Deadline(Duration duration) : end_(std::chrono::steady_clock::now() + duration) {}
  std::chrono::steady_clock::time_point end() const { return end_; }
  Duration left() const;  // throws deadline_exceeded at the end

 private:
  std::chrono::steady_clock::time_point end_;
};

struct GitRun {
  std::string directory = {};  // --git-dir; empty: none
  std::string protocol = {};   // the only transport allowed, if any: "https", "ssh", "git", "file"
  const GitAccess* access = nullptr;
  std::string input = {};
  int input_fd = -1;   // instead of `input`
  int output_fd = -1;  // target of standard output, instead of the result
  std::vector<int> inherit_fds = {};
  uint64_t max_file_bytes = 0;
  ProgressFunction progress = {};
  bool from_upstream = false;  // a fetch with --progress: refuse too many objects
};

class GitCommand {
 public:
  explicit GitCommand(const RepoCacheOptions& options) : options_(options) {}

  // The exit status is data.
  base::ProcessResult try_run(const std::vector<std::string>& arguments, const Deadline& deadline,
                              const GitRun& run) const;
  // Fetches from a repository or bundle on this host.
  base::ProcessResult try_fetch_file(const std::string& from, const std::vector<std::string>& refs,
                                     const Deadline& deadline, GitRun run) const;
  // Throws the Error of git_failure(); returns standard output.
  std::string run(const std::vector<std::string>& arguments, const Deadline& deadline,
                  const GitRun& run, const std::string& what) const;

 private:
  const RepoCacheOptions& options_;
};

// corrupted here means: our side of the transport is damaged, and the mirror must be checked.
Error git_failure(const base::ProcessResult& result, const std::string& what);

}  // namespace moorage::repo_cache
