// Directories with repositories for the tests of `create --from`, and a receiver like the daemon.
#pragma once

#include <stdlib.h>

#include <catch2/catch.hpp>

#include "base/os/files.h"
#include "base/os/process.h"
#include "cli/local/bundle.h"

namespace moorage::test::local {

using cli::LocalBundle;

class Directory {
 public:
  Directory() : path_("/tmp/moorage-bundle-test-XXXXXX") { ::mkdtemp(path_.data()); }
  ~Directory() { base::remove_tree(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  void put(const std::string& name, const std::string& text) const {
    base::make_directories((*this / name).substr(0, (*this / name).rfind('/')), 0755);
    base::write_file(*this / name, text, 0644);
  }

 private:
  std::string path_;
};

inline std::string git(const std::string& directory, std::vector<std::string> words) {
  words.insert(words.begin(),
               {"git", "-C", directory, "-c", "user.name=t", "-c", "user.email=t@t"});
  base::ProcessOptions options;
  options.environment = {{"HOME", "/nonexistent"}, {"GIT_CONFIG_NOSYSTEM", "1"}};
  const base::ProcessResult result = base::run_process(words, options);
  INFO(result.error);
  REQUIRE(result.ok());
  std::string text = result.output;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

inline void make_repository(const Directory& directory, const std::string& name) {
  directory.put(name + "/README", "one\n");
  directory.put(name + "/gone", "x\n");
  directory.put(name + "/.gitignore", "ignored/\n");
  git(directory / name, {"init", "-q", "-b", "main"});
  git(directory / name, {"add", "-A"});
  git(directory / name, {"commit", "-q", "-m", "first"});
}

// Like the daemon: fetches from the bundle into a repository that may have earlier ones.
inline void receive(const LocalBundle::Written& written, const std::string& repository) {
  if (!base::path_exists(repository)) git("/", {"init", "-q", "--bare", repository});
  const std::string whole = base::read_file(written.path).substr(written.body_offset);
  base::write_file(repository + "/received", written.header + whole);
  git(repository, {"fetch", "-q", repository + "/received", "+refs/*:refs/*"});
  git(repository, {"fsck", "--no-dangling"});
}

inline LocalBundle::Written pack(LocalBundle& bundle, const std::vector<std::string>& tips = {}) {
  bundle.commit();
  return bundle.write(tips);
}

// A repository with two commits, a branch and a tag, that others clone from.
inline void make_upstream(const Directory& directory) {
  make_repository(directory, "upstream");
  git(directory / "upstream", {"tag", "-a", "-m", "one", "v1"});
  git(directory / "upstream", {"branch", "side"});
  directory.put("upstream/second", "2\n");
  directory.put("upstream/README", "two\n");
  git(directory / "upstream", {"add", "-A"});
  git(directory / "upstream", {"commit", "-q", "-m", "second"});
  for (const char* setting : {"uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"})
    git(directory / "upstream", {"config", setting, "true"});
}

inline void clone(const Directory& directory, const std::string& name,
                  std::vector<std::string> options = {}) {
  options.insert(options.begin(), {"clone", "-q"});
  options.insert(options.end(), {"file://" + (directory / "upstream"), directory / name});
  git("/", options);
}

inline bool has_note(const LocalBundle& bundle, const std::string& text) {
  for (const std::string& note : bundle.notes()) {
    if (note.find(text) != std::string::npos) return true;
  }
  return false;
}

}  // namespace moorage::test::local
