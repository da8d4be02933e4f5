#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "base/error.h"
#include "base/os/files.h"
#include "base/os/process.h"
#include "cli/client/json.h"
#include "cli/local/bundle.h"
#include "program.h"
#include "scripted_server.h"

using namespace moorage;
using cli::LocalBundle;

namespace {

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

std::string git(const std::string& directory, std::vector<std::string> words) {
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

void make_repository(const Directory& directory, const std::string& name) {
  directory.put(name + "/README", "one\n");
  directory.put(name + "/gone", "x\n");
  directory.put(name + "/.gitignore", "ignored/\n");
  git(directory / name, {"init", "-q", "-b", "main"});
  git(directory / name, {"add", "-A"});
  git(directory / name, {"commit", "-q", "-m", "first"});
}

// Like the daemon: fetches from the bundle into a repository that may have earlier ones.
void receive(const LocalBundle::Written& written, const std::string& repository) {
  if (!base::path_exists(repository)) git("/", {"init", "-q", "--bare", repository});
  const std::string whole = base::read_file(written.path).substr(written.body_offset);
  base::write_file(repository + "/received", written.header + whole);
  git(repository, {"fetch", "-q", repository + "/received", "+refs/moorage/*:refs/moorage/*"});
  git(repository, {"fsck", "--no-dangling"});
}

LocalBundle::Written pack(LocalBundle& bundle, const std::vector<std::string>& tips = {}) {
  bundle.commit();
  return bundle.write(tips);
}

}  // namespace

TEST_CASE(
    "changed, untracked and deleted files are sent, ignored ones stay, and nothing changes "
    "locally") {
  Directory directory;
  make_repository(directory, "repo");
  directory.put("repo/README", "two\n");
  directory.put("repo/new/file", "new\n");
  directory.put("repo/ignored/big", "no\n");
  directory.put("repo/odd \xff\"\n", "odd\n");
  ::unlink((directory / "repo/gone").c_str());
  directory.put("repo/staged", "staged\n");
  git(directory / "repo", {"add", "staged"});
  const std::string status = git(directory / "repo", {"status", "--porcelain"});
  const std::string head = git(directory / "repo", {"rev-parse", "HEAD"});
  const std::string objects = git(directory / "repo", {"count-objects"});
  LocalBundle bundle(directory / "repo/new");  // a subdirectory means the whole repository
  CHECK(bundle.top() == directory / "repo");
  receive(pack(bundle), directory / "daemon");
  CHECK(bundle.head_commit() == head);
  CHECK(git(directory / "daemon", {"rev-parse", "refs/moorage/head"}) == head);
  CHECK(git(directory / "daemon", {"rev-parse", "refs/moorage/work^"}) == head);
  constexpr char kChanges[] = "M\0README\0D\0gone\0A\0new/file\0A\0odd \xff\"\n\0A\0staged\0";
  CHECK(git(directory / "daemon",
            {"diff", "--name-status", "-z", "refs/moorage/head", "refs/moorage/work"}) ==
        std::string(kChanges, sizeof kChanges - 1));
  CHECK(git(directory / "repo", {"status", "--porcelain"}) == status);
  CHECK(git(directory / "repo", {"rev-parse", "HEAD"}) == head);
  CHECK(git(directory / "repo", {"count-objects"}) == objects);
}

TEST_CASE("a second import sends only new objects, and always both refs") {
  Directory directory;
  make_repository(directory, "repo");
  directory.put("repo/large", std::string(200'000, 'x') + std::to_string(::getpid()));
  git(directory / "repo", {"add", "-A"});
  git(directory / "repo", {"commit", "-q", "-m", "large"});
  std::string head, work;
  {
    LocalBundle bundle(directory / "repo");
    receive(pack(bundle), directory / "daemon");
    head = bundle.head_commit();
    work = bundle.work_commit();
  }
  SECTION("nothing changed: the same commits") {
    LocalBundle bundle(directory / "repo");
    receive(pack(bundle, {head, work, "0000000000000000000000000000000000000000", "no oid"}),
            directory / "daemon");
    CHECK(bundle.head_commit() == head);
    CHECK(bundle.work_commit() == work);
  }
  SECTION("a change on top") {
    directory.put("repo/README", "three\n");
    LocalBundle bundle(directory / "repo");
    const LocalBundle::Written written = pack(bundle, {head, work});
    CHECK(base::read_file(written.path).size() < 2000);
    CHECK(written.header.find(head + " refs/moorage/head\n") != std::string::npos);
    CHECK(written.header.find(bundle.work_commit() + " refs/moorage/work\n") != std::string::npos);
    receive(written, directory / "daemon");
    CHECK(git(directory / "daemon", {"show", "refs/moorage/work:README"}) == "three");
  }
}

TEST_CASE("a plain directory and a repository without a commit get an initial one") {
  Directory directory;
  directory.put("plain/a/b", "text\n");
  directory.put("plain/.gitignore", "*.o\n");
  directory.put("plain/x.o", "no\n");
  if (GENERATE(false, true)) git(directory / "plain", {"init", "-q"});
  LocalBundle bundle(directory / "plain");
  receive(pack(bundle), directory / "daemon");
  CHECK(git(directory / "daemon", {"ls-tree", "-r", "--name-only", "refs/moorage/head"}) ==
        ".gitignore\na/b");
  CHECK(git(directory / "daemon", {"diff", "refs/moorage/head", "refs/moorage/work"}) == "");
}

TEST_CASE("a linked worktree is imported") {
  Directory directory;
  make_repository(directory, "repo");
  git(directory / "repo", {"worktree", "add", "-q", directory / "tree", "-b", "side"});
  directory.put("tree/only-here", "x\n");
  LocalBundle bundle(directory / "tree");
  CHECK(bundle.top() == directory / "tree");
  receive(pack(bundle), directory / "daemon");
  CHECK(git(directory / "daemon", {"show", "refs/moorage/work:only-here"}) == "x");
}

TEST_CASE("a shallow checkout is imported without its history, with a note") {
  Directory directory;
  make_repository(directory, "repo");
  directory.put("repo/second", "2\n");
  git(directory / "repo", {"add", "-A"});
  git(directory / "repo", {"commit", "-q", "-m", "second"});
  git("/", {"clone", "-q", "--depth=1", "file://" + (directory / "repo"), directory / "shallow"});
  directory.put("shallow/README", "changed\n");
  LocalBundle bundle(directory / "shallow");
  receive(pack(bundle), directory / "daemon");
  REQUIRE(bundle.notes().size() == 1);
  CHECK(git(directory / "daemon",
            {"diff", "--name-only", "refs/moorage/head", "refs/moorage/work"}) == "README");
}

TEST_CASE("hooks and file system monitors of the directory do not run") {
  Directory directory;
  make_repository(directory, "repo");
  directory.put("evil", "#!/bin/sh\ntouch " + (directory / "ran") + "\n");
  ::chmod((directory / "evil").c_str(), 0755);
  git(directory / "repo", {"config", "core.fsmonitor", directory / "evil"});
  git(directory / "repo", {"config", "core.hooksPath", directory / "hooks"});
  directory.put("hooks/pre-commit", "#!/bin/sh\ntouch " + (directory / "ran") + "\n");
  LocalBundle bundle(directory / "repo");
  pack(bundle);
  CHECK_FALSE(base::path_exists(directory / "ran"));
}

TEST_CASE("create --from streams the bundle and makes a workspace from it") {
  Directory directory;
  make_repository(directory, "repo");
  directory.put("repo/README", "changed\n");
  std::string label, bundle, created;
  test::ScriptedServer server([&](test::Call& call) {
    const std::string body = call.body();
    if (call.is("GET /v1/repos/import"))
      return call.reply(404, R"({"code":"not_found","message":"none"})");
    if (call.is("POST /v1/repos/import")) {
      label = call.query("label");
      bundle = body;
      base::write_file(directory / "sent", body);
      ::usleep(300'000);  // a phase that takes a moment leaves a line
      git("/", {"init", "-q", "--bare", directory / "daemon"});
      git(directory / "daemon",
          {"fetch", "-q", directory / "sent", "+refs/moorage/*:refs/moorage/*"});
      return call.reply(200, R"({"repo":"repo_9","head_commit":")" +
                                 git(directory / "daemon", {"rev-parse", "refs/moorage/head"}) +
                                 R"(","work_commit":")" +
                                 git(directory / "daemon", {"rev-parse", "refs/moorage/work"}) +
                                 "\"}");
    }
    created = body;
    call.reply(201, R"({"id":"ws_1","name":"try","repo":{"name":"repo"},"backend":"lxc"})",
               test::json_header());
  });
  const test::Ran ran = test::run_moorage({"create", "--from", directory / "repo", "--name", "try"},
                                          {server.socket_path(), "", {}});
  server.settle();
  CHECK(ran.err.find("moorage:") == std::string::npos);  // only progress
  const size_t upload = ran.err.find(" upload   ");
  REQUIRE(upload != std::string::npos);
  const std::string line =
      ran.err.substr(upload + 10, ran.err.find("   ", upload + 10) - upload - 10);
  CHECK(line.substr(0, line.find(" of ")) == line.substr(line.find(" of ") + 4));
  CHECK(ran.code == 0);
  CHECK(label == directory / "repo");
  const cli::Json json = cli::Json::parse(created);
  CHECK(json.text("import.repo") == "repo_9");
  CHECK(json.text("import.work_commit") ==
        git(directory / "daemon", {"rev-parse", "refs/moorage/work"}));
  CHECK_FALSE(json.has("repo_url"));
  CHECK(test::run_moorage({"create", "--from", "/nonexistent"}, {server.socket_path(), "", {}})
            .code == 1);
}

TEST_CASE("a nested repository without a commit is named with a hint") {
  Directory directory;
  make_repository(directory, "repo");
  directory.put("repo/inner/file", "x");
  git(directory / "repo/inner", {"init", "-q"});
  LocalBundle bundle(directory / "repo");
  try {
    bundle.commit();
    FAIL("taken");
  } catch (const base::Error& error) {
    CHECK(error.message().find("inner") != std::string::npos);
    CHECK(error.hint().find("has no commit yet") != std::string::npos);
  }
}
