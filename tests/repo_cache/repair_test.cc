#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "base/os/files.h"
#include "git_fixture.h"
#include "repo_cache/base_tree.h"

using namespace moorage;
using namespace moorage::repo_cache;
using namespace moorage::repo_cache::test;

namespace fs = std::filesystem;

namespace {

struct Repository : CachedUpstream {
  std::string first;

  Repository() {
    std::map<std::string, std::string> files;
    for (int i = 0; i < 300; ++i)
      files["f" + std::to_string(i)] = std::string(500, static_cast<char>('a' + i % 26));
    first = upstream.commit(files);
  }

  std::string mirror() const { return cache.mirror_directory("repo_1"); }

  // Runs a refresh in a process that dies at a crash point or is killed after a while. Returns its
  // wait status.
  int refresh_and_die(const char* crash_at, std::chrono::microseconds kill_after) {
    const pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      if (crash_at) setenv("MOORAGE_CRASH_AT", crash_at, 1);
      const std::string root = directory / "repos";
      const std::string served = directory / "served";
      execl(REFRESH_VICTIM, REFRESH_VICTIM, root.c_str(), "repo_1", upstream.path().c_str(),
            served.c_str(), nullptr);
      _exit(127);
    }
    if (!crash_at) {
      std::this_thread::sleep_for(kill_after);
      kill(pid, SIGKILL);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return status;
  }

  void expect_healthy(const std::string& tip) {
    const RefreshResult result = refresh();
    CHECK(result.tip == tip);
    CHECK_FALSE(base::path_exists(cache.directory("repo_1") + "/git.new"));
    CHECK_FALSE(base::path_exists(cache.directory("repo_1") + "/fetching"));
    git(mirror(), {"fsck", "--strict"});
    cache.check("repo_1", kLong);
  }

  fs::path only_pack() const {
    for (const auto& entry : fs::directory_iterator(mirror() + "/objects/pack")) {
      if (entry.path().extension() == ".pack") return entry.path();
    }
    FAIL("no pack");
    return {};
  }
};

}  // namespace

TEST_CASE("a clone killed at any point recovers") {
  for (const char* crash_at : {"repo.clone.fetched", "repo.clone.synced"}) {
    Repository repository;
    const int status = repository.refresh_and_die(crash_at, {});
    INFO(crash_at);
    REQUIRE(WIFSIGNALED(status));
    CHECK_FALSE(repository.cache.exists("repo_1"));
    repository.expect_healthy(repository.first);
  }
  Repository repository;
  for (int i = 0; i < 6; ++i) {
    repository.refresh_and_die(nullptr, std::chrono::milliseconds(3 + 9 * i));
    if (repository.cache.exists("repo_1")) git(repository.mirror(), {"fsck", "--strict"});
  }
  repository.expect_healthy(repository.first);
}

TEST_CASE("a fetch killed at any point recovers, and keeps refs that upstream dropped") {
  for (const char* crash_at : {"repo.fetch.marked", "repo.fetch.done"}) {
    Repository repository;
    repository.refresh();
    repository.upstream.run({"commit", "-q", "--amend", "-m", "rewritten"});
    const std::string rewritten = repository.upstream.head();
    const int status = repository.refresh_and_die(crash_at, {});
    INFO(crash_at);
    REQUIRE(WIFSIGNALED(status));
    repository.expect_healthy(rewritten);
    CHECK(git(repository.mirror(), {"for-each-ref", "refs/keep"}).find(repository.first) !=
          std::string::npos);
  }
}

TEST_CASE("lock files and partial packs of a killed git are harmless") {
  Repository repository;
  repository.refresh();
  const std::string second = repository.upstream.commit({{"new", "x"}});
  put_file(repository.cache.directory("repo_1") + "/fetching", "");
  put_file(repository.mirror() + "/refs/upstream/heads/main.lock", "");
  put_file(repository.mirror() + "/packed-refs.lock", "");
  put_file(repository.mirror() + "/objects/pack/tmp_pack_abc", "PACK");
  repository.expect_healthy(second);
  CHECK_FALSE(base::path_exists(repository.mirror() + "/objects/pack/tmp_pack_abc"));
}

TEST_CASE("a broken mirror is found, set aside and rebuilt, and never served") {
  Repository repository;
  repository.refresh();
  SECTION("a pack is cut short") {
    fs::permissions(repository.only_pack(), fs::perms::owner_write, fs::perm_options::add);
    fs::resize_file(repository.only_pack(), 1000);
  }
  SECTION("a pack is gone") { fs::remove(repository.only_pack()); }
  SECTION("all objects are gone") { fs::remove_all(repository.mirror() + "/objects/pack"); }
  SECTION("the references are garbage") {
    put_file(repository.mirror() + "/packed-refs", "\xff\xff garbage\n");
  }
  SECTION("a reference is empty, as after a power cut") {
    put_file(repository.mirror() + "/refs/upstream/heads/main", "");
  }
  SECTION("a reference names a missing object") {
    put_file(repository.mirror() + "/refs/upstream/heads/main", std::string(40, '1') + "\n");
  }
  SECTION("the configuration is gone") { fs::remove(repository.mirror() + "/HEAD"); }
  const RefreshResult result = repository.refresh();
  CHECK(result.rebuilt);
  CHECK(result.tip == repository.first);
  CHECK(base::path_exists(repository.cache.directory("repo_1") + "/git.broken"));
  repository.expect_healthy(repository.first);
}

TEST_CASE("a broken object marks the mirror, and the next refresh rebuilds it") {
  Repository repository;
  repository.refresh();
  const fs::path pack = repository.only_pack();
  fs::permissions(pack, fs::perms::owner_write, fs::perm_options::add);
  std::string bytes = get_file(pack);
  for (size_t i = bytes.size() / 4; i < bytes.size() * 3 / 4; ++i)
    bytes[i] = static_cast<char>(bytes[i] ^ 0x55);
  put_file(pack, bytes);
  RepoCache fresh(repository.cache.options());
  BaseTrees trees(fresh);
  CHECK_THROWS_AS(trees.write("repo_1", repository.first, "", kLong), base::Error);
  CHECK_FALSE(trees.exists("repo_1", repository.first));
  CHECK(trees.list("repo_1").empty());
  try {
    fresh.resolve("repo_1", "main");
    FAIL("a damaged mirror was served");
  } catch (const base::Error& error) {
    CHECK(error.code() == base::Code::corrupted);
  }
  CHECK(repository.refresh().rebuilt);
  RepoCache later(repository.cache.options());
  CHECK(BaseTrees(later).write("repo_1", repository.first, "", kLong).files == 300);
}

TEST_CASE("a missing file is reported as damage, not as not found") {
  Repository repository;
  repository.refresh();
  const std::string mirror = repository.mirror();
  const std::string blob = repository.upstream.run({"rev-parse", "HEAD:f7"});
  const fs::path pack = repository.only_pack();
  fs::rename(pack, repository.directory / "p.pack");
  fs::remove(fs::path(pack).replace_extension(".idx"));
  git(mirror, {"unpack-objects", "-q"}, get_file(repository.directory / "p.pack"));
  fs::remove(mirror + "/objects/" + blob.substr(0, 2) + "/" + blob.substr(2));
  RepoCache fresh(repository.cache.options());
  try {
    BaseTrees(fresh).write("repo_1", repository.first, "", kLong);
    FAIL("written without its files");
  } catch (const base::Error& error) {
    CHECK(error.code() == base::Code::corrupted);
    CHECK(error.message().find("\"f") != std::string::npos);
  }
  CHECK(repository.refresh().rebuilt);
  CHECK(BaseTrees(fresh).write("repo_1", repository.first, "", kLong).files == 300);
}

TEST_CASE("a rebuild keeps objects that upstream no longer has") {
  Repository repository;
  repository.refresh();
  repository.upstream.run({"commit", "-q", "--amend", "-m", "rewritten"});
  const std::string rewritten = repository.upstream.head();
  repository.refresh();
  put_file(repository.mirror() + "/refs/upstream/heads/broken", std::string(40, '2') + "\n");
  CHECK(repository.refresh().rebuilt);
  CHECK(repository.cache.resolve("repo_1", repository.first).commit == repository.first);
  CHECK(repository.cache.resolve("repo_1", "").commit == rewritten);
}

TEST_CASE("a broken mirror without an upstream stays refused") {
  Repository repository;
  repository.refresh();
  fs::remove(repository.only_pack());
  fs::rename(repository.directory / "served/shop", repository.directory / "served/away");
  CHECK_THROWS_AS(repository.refresh(), base::Error);
  CHECK_THROWS_AS(repository.cache.resolve("repo_1", "main"), base::Error);
  fs::rename(repository.directory / "served/away", repository.directory / "served/shop");
  CHECK(repository.refresh().rebuilt);
}

TEST_CASE("a removed repository leaves nothing, and comes back") {
  Repository repository;
  repository.refresh();
  repository.cache.remove("repo_1", [] { return false; });
  CHECK(repository.cache.exists("repo_1"));
  repository.cache.remove("repo_1", [] { return true; });
  CHECK_FALSE(base::path_exists(repository.cache.directory("repo_1")));
  repository.cache.remove("repo_1", [] { return true; });
  CHECK(repository.refresh().cloned);
}

TEST_CASE("only a plain name can be a repository directory") {
  Repository repository;
  for (const char* name : {"", "..", "a/b", "repo-1", "Repo", "repo_1/../x"}) {
    CHECK_THROWS_AS(repository.cache.directory(name), base::Error);
  }
}
