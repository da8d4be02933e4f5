// A repository beside the store, made by git itself.
#pragma once

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/os/files.h"
#include "base/os/process.h"

namespace moorage::workspace {

struct Upstream {
  std::string path;

  explicit Upstream(std::string directory) : path(std::move(directory)) {
    base::make_directories(path);
    git({"init", "-q", "-b", "main"});
  }
  // All that is in the directory. Returns the commit's id.
  std::string commit() const {
    git({"add", "-A"});
    git({"commit", "-q", "-m", "by the test"});
    return git({"rev-parse", "HEAD"});
  }
  // The first line of its output.
  std::string git(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"git", "-c", "user.name=A", "-c", "user.email=a@b"});
    base::ProcessOptions options;
    options.environment = {
        {"PATH", "/usr/bin:/bin"}, {"HOME", "/nonexistent"}, {"GIT_CONFIG_NOSYSTEM", "1"}};
    options.directory = path;
    const auto result = base::run_process(arguments, options);
    INFO(result.error);
    REQUIRE(result.ok());
    return result.output.substr(0, result.output.find('\n'));
  }
};

}  // namespace moorage::workspace
