#include <fcntl.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "base/error.h"
#include "base/os/files.h"
#include "git_fixture.h"
#include "repo_cache/base_tree.h"
#include "repo_cache/workspace_git.h"

using namespace moorage;
using namespace moorage::repo_cache;
using namespace moorage::repo_cache::test;

namespace fs = std::filesystem;

namespace {

// A local checkout with uncommitted work, and a client's bundle of it.
struct Checkout {
  TemporaryDirectory directory;
  Upstream local{directory / "local"};
  std::string first = local.commit({{"a", "one\n"}, {"b", "two\n"}});
  std::string head = local.commit({{"a", "three\n"}});
  RepoCache cache{options_for(directory, directory / "local")};

  std::string make_work() {
    put_file(local.path() + "/a", "uncommitted\n");
    put_file(local.path() + "/untracked", "u\n");
    local.run({"add", "-A"});
    const std::string tree = local.run({"write-tree"});
    local.run({"reset", "-q"});
    return local.run({"commit-tree", "-p", local.head(), "-m", "work", tree});
  }
  std::string bundle(const std::string& head_commit, const std::string& work_commit,
                     const std::vector<std::string>& without = {}) {
    local.run({"update-ref", "refs/moorage/head", head_commit});
    local.run({"update-ref", "refs/moorage/work", work_commit});
    const std::string file = directory / "bundle";
    std::vector<std::string> arguments = {
        "bundle", "create", "-q", file, "refs/moorage/head", "refs/moorage/work"};
    for (const auto& oid : without) arguments.push_back("^" + oid);
    local.run(arguments);
    return file;
  }
  ImportResult import(const std::string& file, const ImportLimits& limits = {}) {
    const base::Fd fd = base::open_file(file, O_RDONLY);
    return cache.import_bundle("repo_1", fd.get(), limits);
  }
  base::Code refusal(const std::string& file, const ImportLimits& limits = {}) {
    try {
      import(file, limits);
    } catch (const base::Error& error) {
      INFO(error.what());
      return error.code();
    }
    FAIL("accepted");
    return base::Code::internal;
  }
};

}  // namespace

TEST_CASE("a bundle of a checkout becomes a repository with head and work") {
  Checkout world;
  const std::string work = world.make_work();
  const ImportResult result = world.import(world.bundle(world.head, work));
  CHECK(result.head_commit == world.head);
  CHECK(result.work_commit == work);
  CHECK(world.cache.resolve("repo_1", "").commit == world.head);
  BaseTrees trees(world.cache);
  CHECK(trees.write("repo_1", world.head, "", std::chrono::minutes(1)).files == 2);
  CHECK(result.raw_commit == work);
  CHECK(trees.write("repo_1", work, "", std::chrono::minutes(1)).files == 3);
  CHECK(get_file(trees.directory("repo_1", work) + "/tree/untracked") == "u\n");
  CHECK(world.cache.is_child("repo_1", work, world.head));
  CHECK_FALSE(world.cache.is_child("repo_1", world.head, work));
  CHECK(base::list_directory(world.cache.directory("repo_1")) ==
        std::vector<std::string>{"git", "lock", "trees"});
}

TEST_CASE("branches, tags and remote branches of a checkout come with it, and go with the next") {
  Checkout world;
  const std::string work = world.make_work();
  const auto import_all = [&](const std::vector<std::string>& refs) {
    world.local.run({"update-ref", "refs/moorage/head", world.head});
    world.local.run({"update-ref", "refs/moorage/work", work});
    const std::string file = world.directory / "bundle";
    std::vector<std::string> words{"bundle",           "create", "-q", file, "refs/moorage/head",
                                   "refs/moorage/work"};
    words.insert(words.end(), refs.begin(), refs.end());
    world.local.run(words);
    world.import(file);
  };
  world.local.run({"branch", "old", world.first});
  world.local.run({"update-ref", "refs/remotes/fork/main", world.first});
  world.local.run({"tag", "-a", "-m", "tag", "v1", world.first});
  const std::string tag = world.local.run({"rev-parse", "v1"});
  import_all({"refs/heads/main", "refs/heads/old", "refs/remotes/fork/main", "refs/tags/v1"});
  CHECK(world.cache.workspace_refs("repo_1")->packed_refs ==
        "# pack-refs with: peeled fully-peeled sorted \n" + world.head + " refs/heads/main\n" +
            world.first + " refs/heads/old\n" + world.first + " refs/remotes/fork/main\n" + tag +
            " refs/tags/v1\n^" + world.first + "\n");
  CHECK(world.cache.local_branches("repo_1", 10) == std::vector{world.head, world.first});
  import_all({"refs/heads/main"});
  CHECK(world.cache.workspace_refs("repo_1")->packed_refs.find("refs/tags") == std::string::npos);
  // An older workspace still shows the tag.
  CHECK(world.cache.all_refs("repo_1").find(tag + " refs/keep/" + tag) != std::string::npos);
  git(world.cache.mirror_directory("repo_1"), {"fsck", "--strict"});
}

TEST_CASE("a thin bundle uses existing objects, and an old import stays") {
  Checkout world;
  const std::string work = world.make_work();
  world.import(world.bundle(world.head, work));
  const std::vector<std::string> tips = world.cache.tips("repo_1");
  CHECK(tips.size() == 2);
  const std::string next = world.local.commit({{"c", "next\n"}});
  const std::string next_work = world.make_work();
  const std::string thin = world.bundle(next, next_work, {world.head});
  CHECK(world.import(thin).head_commit == next);
  CHECK(world.cache.resolve("repo_1", work).commit == work);
  CHECK(world.cache.tips("repo_1").size() == 4);
  git(world.cache.mirror_directory("repo_1"), {"fsck", "--strict"});
  fs::remove_all(world.cache.directory("repo_1"));
  CHECK(world.refusal(thin) == base::Code::conflict);
}

TEST_CASE("the branch of a workspace takes the place of names that git does not allow beside it") {
  const std::string oid(40, '1');
  const std::string mine(40, '2');
  const std::string refs = "# pack-refs with: peeled fully-peeled sorted \n" + oid +
                           " refs/heads/main\n" + oid + " refs/heads/moorage\n" + oid +
                           " refs/heads/moorage/a/b\n" + oid + " refs/heads/moorage/ab\n" + oid +
                           " refs/tags/v1\n^" + oid + "\n";
  CHECK(with_branch(refs, "refs/heads/moorage/a", mine) ==
        "# pack-refs with: peeled fully-peeled sorted \n" + oid + " refs/heads/main\n" + mine +
            " refs/heads/moorage/a\n" + oid + " refs/heads/moorage/ab\n" + oid +
            " refs/tags/v1\n^" + oid + "\n");
  CHECK(with_branch("", "refs/heads/x", mine) ==
        "# pack-refs with: peeled fully-peeled sorted \n" + mine + " refs/heads/x\n");
}

TEST_CASE("a bundle imported into an upstream's mirror leaves upstream's references alone") {
  Checkout world;
  const RepoUrl url = parse_url(world.local.path(), world.cache.options().url_policy);
  world.cache.refresh("repo_1", url, std::chrono::minutes(1));
  const std::string work = world.make_work();
  world.import(world.bundle(world.head, work, {world.head + "~1"}));
  CHECK(world.cache.resolve("repo_1", "").ref == "refs/heads/main");
  world.cache.refresh("repo_1", url, std::chrono::minutes(1));
  CHECK(world.cache.resolve("repo_1", work).commit == work);
}

TEST_CASE("a bad bundle is refused and leaves nothing") {
  Checkout world;
  const std::string work = world.make_work();
  const std::string good = world.bundle(world.head, work);
  const std::string bytes = get_file(good);
  const std::string bad = world.directory / "bad";
  const auto refusal_of = [&](const std::string& content) {
    put_file(bad, content);
    return world.refusal(bad);
  };
  CHECK(refusal_of("") == base::Code::invalid_argument);
  CHECK(refusal_of("not a bundle") == base::Code::invalid_argument);
  CHECK(refusal_of("# v2 git bundle\n") == base::Code::invalid_argument);
  CHECK(refusal_of(bytes.substr(0, bytes.size() - 30)) == base::Code::invalid_argument);
  std::string flipped = bytes;
  flipped[bytes.size() - 60] = static_cast<char>(flipped[bytes.size() - 60] ^ 1);
  CHECK(refusal_of(flipped) == base::Code::invalid_argument);
  // Without a work commit on top of head.
  CHECK(world.refusal(world.bundle(world.head, world.first)) == base::Code::invalid_argument);
  ImportLimits limits;
  limits.max_bytes = 100;
  CHECK(world.refusal(good, limits) == base::Code::resource_exhausted);
  CHECK(world.cache.tips("repo_1").empty());
  CHECK_FALSE(base::path_exists(world.cache.directory("repo_1") + "/import.new"));
}

TEST_CASE("a bundle cannot import objects that git's checks refuse") {
  Checkout world;
  const std::string blob = world.local.run({"hash-object", "-w", "--stdin"}, "x");
  const std::string evil = world.local.run({"mktree"}, "100644 blob " + blob + "\t.git\n");
  const std::string work = world.local.run({"commit-tree", "-p", world.head, "-m", "evil", evil});
  CHECK(world.refusal(world.bundle(world.head, work)) == base::Code::invalid_argument);
  CHECK(world.cache.tips("repo_1").empty());
}
