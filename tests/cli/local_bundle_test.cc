#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "base/error.h"
#include "base/os/files.h"
#include "cli/client/json.h"
#include "cli/local/bundle.h"
#include "local_scene.h"
#include "program.h"
#include "scripted_server.h"

using namespace moorage;
using namespace moorage::test::local;
using cli::LocalBundle;

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

TEST_CASE("branches, tags and remote branches come along") {
  Directory directory;
  make_upstream(directory);
  clone(directory, "repo");
  git(directory / "repo", {"switch", "-q", "-c", "topic"});
  directory.put("repo/third", "3\n");
  git(directory / "repo", {"add", "-A"});
  git(directory / "repo", {"commit", "-q", "-m", "third"});
  LocalBundle bundle(directory / "repo");
  receive(pack(bundle), directory / "daemon");
  CHECK(bundle.origin().empty());  // a path of this host
  CHECK(git(directory / "daemon", {"rev-list", "--count", "main..topic"}) == "1");
  CHECK(git(directory / "daemon", {"describe", "topic"}).starts_with("v1-2-g"));
  CHECK(git(directory / "daemon", {"rev-parse", "refs/remotes/origin/side"}) ==
        git(directory / "upstream", {"rev-parse", "side"}));
  git(directory / "repo",
      {"remote", "set-url", "origin", "https://me:secret@git.example.com/a/b.git"});
  CHECK(LocalBundle(directory / "repo").origin() == "https://git.example.com/a/b.git");
  SECTION("the next one sends next to nothing, and all names") {
    LocalBundle again(directory / "repo");
    const auto written = pack(again, {again.head_commit(), bundle.head_commit()});
    CHECK(base::read_file(written.path).size() < 1500);
    receive(written, directory / "daemon");
  }
}

TEST_CASE("files come byte for byte, whatever git's flags, filters and attributes say") {
  Directory directory;
  make_repository(directory, "repo");
  directory.put("repo/.gitattributes",
                "*.txt text\n*.rot filter=rot\n*.utf working-tree-encoding=UTF-16LE\n");
  directory.put("repo/assumed", "before\n");
  directory.put("repo/skipped", "before\n");
  directory.put("repo/absent", "before\n");
  git(directory / "repo", {"config", "filter.rot.clean", "tr a-z b-za"});
  git(directory / "repo", {"config", "filter.rot.smudge", "tr b-za a-z"});
  const std::map<std::string, std::string> files = {{"dos.txt", "1\r\n2\r\n"},
                                                    {"word.rot", "hello\n"},  // its blob is as long
                                                    {"wide.utf", std::string("h\0i\0\n\0", 6)}};
  for (const auto& [name, bytes] : files) directory.put("repo/" + name, bytes);
  git(directory / "repo", {"add", "-A"});
  git(directory / "repo", {"commit", "-q", "-m", "all"});
  git(directory / "repo", {"update-index", "--assume-unchanged", "assumed"});
  git(directory / "repo", {"update-index", "--skip-worktree", "skipped", "absent"});
  directory.put("repo/assumed", "after\n");
  directory.put("repo/skipped", "after\n");
  ::unlink((directory / "repo/absent").c_str());
  LocalBundle bundle(directory / "repo");
  receive(pack(bundle), directory / "daemon");
  const auto stored = [&](const std::string& name) {
    return git(directory / "daemon", {"show", "refs/moorage/work:" + name}) + "\n";
  };
  const auto raw_id = [&](const std::string& name) {
    return git(directory / "daemon", {"rev-parse", "refs/moorage/raw:" + name});
  };
  for (const auto& [name, bytes] : files) {
    INFO(name);
    CHECK(raw_id(name) == git("/", {"hash-object", "--no-filters", directory / ("repo/" + name)}));
  }
  CHECK(stored("dos.txt") == "1\n2\n");
  CHECK(stored("wide.utf") == "hi\n");
  CHECK(stored("word.rot") == "hello\n");  // no workspace has this filter
  CHECK(stored("assumed") == "after\n");
  CHECK(stored("skipped") == "after\n");
  CHECK(stored("absent") == "before\n");  // as outside of a sparse checkout
  CHECK(has_note(bundle, "1 file outside of the sparse checkout"));
}

TEST_CASE("a file that is not in the encoding of its attribute arrives unchanged") {
  Directory directory;
  make_repository(directory, "repo");
  directory.put("repo/.gitattributes",
                "*.utf working-tree-encoding=UTF-16LE\n*.bom "
                "working-tree-encoding=UTF-16\n");
  directory.put("repo/good.utf", std::string("h\0i\0\n\0", 6));
  git(directory / "repo", {"add", "-A"});
  git(directory / "repo", {"commit", "-q", "-m", "all"});
  const std::map<std::string, std::string> files = {
      {"odd.utf", std::string("\0\xd8x", 3)}, {"it's 'odd'.utf", "x"}, {"none.bom", "h"}};
  for (const auto& [name, bytes] : files) directory.put("repo/" + name, bytes);
  LocalBundle bundle(directory / "repo");
  receive(pack(bundle), directory / "daemon");
  for (const char* tree : {"work", "raw"}) {
    for (const auto& [name, bytes] : files) {
      INFO(tree << " " << name);
      CHECK(git(directory / "daemon",
                {"rev-parse", "refs/moorage/" + std::string(tree) + ":" + name}) ==
            git("/", {"hash-object", "--no-filters", directory / ("repo/" + name)}));
    }
  }
  CHECK(git(directory / "daemon", {"show", "refs/moorage/work:good.utf"}) == "hi");
}

TEST_CASE("a checkout whose path has a newline, quotes and backslashes is imported") {
  Directory directory;
  const std::string name = "a \"b\" \\n\nc\n";
  make_repository(directory, name);
  if (GENERATE(false, true)) {
    git(directory / name, {"worktree", "add", "-q", "-b", "side", directory / "other\n"});
    directory.put("other\n/new", "x\n");
    LocalBundle bundle(directory / "other\n");
    CHECK(bundle.top() == directory / "other\n");
    receive(pack(bundle), directory / "daemon");
  } else {
    directory.put(name + "/new", "x\n");
    LocalBundle bundle(directory / name);
    receive(pack(bundle), directory / "daemon");
  }
  CHECK(git(directory / "daemon", {"show", "refs/moorage/work:new"}) == "x");
}

TEST_CASE("names that git refuses, and branches without their commit, are left out and named") {
  Directory directory;
  make_repository(directory, "repo");
  directory.put("repo/src/.GIT/x", "x\n");
  directory.put("repo/new", "x\n");
  directory.put("repo/.git/refs/heads/broken", std::string(39, '0') + "1\n");
  LocalBundle bundle(directory / "repo");
  receive(pack(bundle), directory / "daemon");
  CHECK(has_note(bundle, "git refuses these names, left out: src/.GIT/x; moorage cp brings them"));
  CHECK(has_note(bundle, "without their commit stay here: refs/heads/broken"));
  CHECK(git(directory / "daemon", {"show", "refs/moorage/work:new"}) == "x");
  CHECK(git(directory / "daemon", {"for-each-ref", "--format=%(refname)", "refs/heads"}) ==
        "refs/heads/main");
}

TEST_CASE("a git directory is refused with what to give instead") {
  Directory directory;
  make_repository(directory, "repo");
  git("/", {"clone", "-q", "--bare", directory / "repo", directory / "bare"});
  for (const char* path : {"bare", "repo/.git/refs"}) {
    try {
      LocalBundle bundle(directory / path);
      FAIL("imported " << path);
    } catch (const Error& error) {
      CHECK(error.message() == directory / path + " is in a git directory, which has no files");
    }
  }
}

TEST_CASE("a directory whose .git cannot be used is refused, not taken for a plain one") {
  Directory directory;
  directory.put("tree/.git", "gitdir: /nonexistent\n");
  directory.put("tree/a", "x\n");
  try {
    LocalBundle bundle(directory / "tree");
    FAIL("imported");
  } catch (const Error& error) {
    CHECK(error.message() == directory / "tree" +
                                 " has a .git that git cannot use: "
                                 "fatal: not a git repository: /nonexistent");
  }
}

TEST_CASE("a directory without git names that GIT_DIR is not used") {
  Directory directory;
  make_repository(directory, "repo");
  directory.put("plain/a", "x\n");
  const std::string elsewhere = directory / "repo/.git";
  ::setenv("GIT_DIR", elsewhere.c_str(), 1);
  LocalBundle bundle(directory / "plain");
  pack(bundle);
  ::unsetenv("GIT_DIR");
  CHECK(has_note(bundle, "GIT_DIR is not used"));
  CHECK(git(directory / "repo", {"status", "--porcelain"}).empty());
}

TEST_CASE("settings of the checkout that change a patch are named") {
  Directory directory;
  make_repository(directory, "repo");
  const std::string value = GENERATE("true", "input", "false");
  git(directory / "repo", {"config", "core.autocrlf", value});
  git(directory / "repo", {"config", "core.eol", value == "false" ? "lf" : "crlf"});
  LocalBundle bundle(directory / "repo");
  pack(bundle);
  CHECK(has_note(bundle, "core.autocrlf is " + value + " here") == (value != "false"));
  CHECK(has_note(bundle, "core.eol is crlf here") == (value != "false"));
}

TEST_CASE("notes name everything that stays behind") {
  Directory directory;
  make_repository(directory, "repo");
  make_repository(directory, "library");
  git(directory / "repo",
      {"-c", "protocol.file.allow=always", "submodule", "add", "-q", directory / "library", "lib"});
  git(directory / "repo", {"commit", "-q", "-m", "submodule"});
  directory.put("repo/lib/README", "changed\n");
  git(directory / "repo", {"switch", "-q", "-c", "side"});
  directory.put("repo/README", "side\n");
  git(directory / "repo", {"commit", "-q", "-a", "-m", "side"});
  git(directory / "repo", {"switch", "-q", "main"});
  make_repository(directory, "repo/nested");
  git(directory / "repo", {"merge", "-q", "--no-commit", "--no-ff", "side"});
  directory.put("repo/staged", "x\n");
  git(directory / "repo", {"add", "staged"});
  LocalBundle bundle(directory / "repo");
  receive(pack(bundle), directory / "daemon");
  CHECK(has_note(bundle, "a merge in progress stays here"));
  CHECK(has_note(bundle, "staged changes"));
  CHECK(has_note(bundle, "changes inside submodules stay here: lib"));
  CHECK(has_note(bundle, "nested repositories, left out: nested"));
  CHECK(git(directory / "daemon", {"show", "refs/moorage/work:README"}) == "side");
  CHECK(git(directory / "daemon", {"ls-tree", "--name-only", "refs/moorage/work"}) ==
        ".gitignore\n.gitmodules\nREADME\ngone\nlib\nstaged");
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

TEST_CASE("a nested repository without a commit is left out and named") {
  Directory directory;
  make_repository(directory, "repo");
  directory.put("repo/inner/file", "x");
  directory.put("repo/new", "x");
  git(directory / "repo/inner", {"init", "-q"});
  LocalBundle bundle(directory / "repo");
  receive(pack(bundle), directory / "daemon");
  CHECK(has_note(bundle, "inner"));
  CHECK(git(directory / "daemon", {"ls-tree", "--name-only", "refs/moorage/work"}) ==
        ".gitignore\nREADME\ngone\nnew");
}

TEST_CASE("notes name what git does not keep, unless it is ignored") {
  Directory directory;
  make_repository(directory, "repo");
  const std::string top = directory / "repo";
  for (const char* path : {"/empty/below", "/ignored-by-rule/x", "/src"})
    base::make_directories(top + path);
  directory.put("repo/src/file", "x");
  directory.put("repo/secret", "x");
  directory.put("repo/.git/info/exclude", "ignored*\n");
  REQUIRE(::mkfifo((top + "/src/pipe").c_str(), 0600) == 0);
  REQUIRE(::mkfifo((top + "/ignored-pipe").c_str(), 0600) == 0);
  REQUIRE(::chmod((top + "/secret").c_str(), 0600) == 0);
  LocalBundle bundle(top);
  receive(pack(bundle), directory / "daemon");
  CHECK(bundle.notes() == std::vector<std::string>{"empty directories stay here: empty/",
                                                   "pipes, sockets and devices stay here: src/pipe",
                                                   "modes become 644 or 755: secret"});
}
