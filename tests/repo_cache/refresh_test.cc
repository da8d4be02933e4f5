#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
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

namespace {

// An upstream with a server, and a cache.
struct World {
  TemporaryDirectory directory;
  Upstream upstream{directory / "served/shop"};
  std::string first = upstream.commit({{"a.txt", "one\n"}, {"dir/b.txt", "two\n"}});
  GitDaemon daemon{directory / "served"};
  RepoUrl url = parse_url(daemon.url("shop"), {});
  RepoCache cache{options_for(directory, directory / "served")};

  RefreshResult refresh() { return cache.refresh("repo_1", url, kLong); }
};

}  // namespace

TEST_CASE("a second refresh of an unmoved upstream moves no pack") {
  World world;
  const RefreshResult first = world.refresh();
  CHECK(first.cloned);
  CHECK(first.default_branch == "main");
  CHECK(first.tip == world.first);
  CHECK(first.bytes > 0);
  REQUIRE(world.daemon.packs_sent() == 1);
  const int connections = world.daemon.connections();
  const RefreshResult second = world.refresh();
  CHECK_FALSE(second.cloned);
  CHECK_FALSE(second.fetched);
  CHECK(second.tip == world.first);
  CHECK(world.daemon.packs_sent() == 1);
  CHECK(world.daemon.connections() == connections + 1);
}

TEST_CASE("a refresh follows upstream's new commits, branches and tags") {
  World world;
  world.refresh();
  const std::string second = world.upstream.commit({{"a.txt", "one and a half\n"}});
  world.upstream.run({"branch", "feature/x"});
  world.upstream.run({"tag", "-a", "-m", "annotated", "v1"});
  world.upstream.run({"tag", "light"});
  const RefreshResult result = world.refresh();
  CHECK(result.fetched);
  CHECK(result.tip == second);
  CHECK(world.daemon.packs_sent() == 2);
  CHECK(world.cache.resolve("repo_1", "feature/x").commit == second);
  CHECK(world.cache.resolve("repo_1", "v1").commit == second);
  CHECK(world.cache.resolve("repo_1", "v1").ref == "refs/tags/v1");
  CHECK(world.cache.distance("repo_1", world.first, "refs/heads/main")->behind == 1);
  CHECK(world.cache.distance("repo_1", world.first, "refs/heads/main")->lost == 0);
}

TEST_CASE("commits that upstream rewrote or deleted stay readable, fast-forwards leave no trace") {
  World world;
  world.upstream.run({"checkout", "-q", "-b", "doomed"});
  const std::string doomed = world.upstream.commit({{"d.txt", "d\n"}});
  world.upstream.run({"checkout", "-q", "-b", "forced", "main"});
  const std::string forced = world.upstream.commit({{"f.txt", "f\n"}});
  world.upstream.run({"checkout", "-q", "main"});
  world.upstream.run({"tag", "-a", "-m", "t", "moving"});
  world.refresh();
  CHECK(world.cache.resolve("repo_1", "doomed").commit == doomed);

  world.upstream.run({"branch", "-D", "doomed"});
  world.upstream.run({"branch", "-f", "forced", "main"});
  const std::string forward = world.upstream.commit({{"a.txt", "forward\n"}});
  world.upstream.run({"tag", "-f", "-a", "-m", "t2", "moving"});
  CHECK(world.refresh().tip == forward);

  CHECK(world.cache.resolve("repo_1", doomed).commit == doomed);
  CHECK(world.cache.resolve("repo_1", forced.substr(0, 10)).commit == forced);
  CHECK(world.cache.resolve("repo_1", "forced").commit == world.first);
  CHECK(failure_of([&] { world.cache.resolve("repo_1", "doomed"); }).code() ==
        base::Code::not_found);
  CHECK_FALSE(world.cache.distance("repo_1", doomed, "refs/heads/doomed"));
  const std::string mirror = world.cache.mirror_directory("repo_1");
  const std::string kept = git(mirror, {"for-each-ref", "--format=%(refname)", "refs/keep"});
  CHECK(kept.find(doomed) != std::string::npos);
  CHECK(kept.find(forced) != std::string::npos);
  CHECK(kept.find(world.first) == std::string::npos);
  CHECK(std::count(kept.begin(), kept.end(), '\n') == 3);  // the old tag object is the third
  git(mirror, {"fsck", "--strict"});
}

TEST_CASE("a branch can replace a directory of branches") {
  World world;
  world.upstream.run({"branch", "topic"});
  world.refresh();
  world.upstream.run({"branch", "-D", "topic"});
  world.upstream.run({"branch", "topic/one"});
  world.refresh();
  CHECK(world.cache.resolve("repo_1", "topic/one").commit == world.first);
}

TEST_CASE("upstream's default branch is followed when it is renamed") {
  World world;
  world.refresh();
  world.upstream.run({"branch", "-m", "main", "trunk"});
  const RefreshResult result = world.refresh();
  CHECK(result.default_branch == "trunk");
  CHECK(world.cache.resolve("repo_1", "").ref == "refs/heads/trunk");
}

TEST_CASE("an unreachable upstream leaves the mirror usable and marks it stale") {
  World world;
  world.refresh();
  world.daemon.stop();
  const RefreshResult result = world.refresh();
  CHECK(result.stale);
  CHECK(result.stale_reason.find("Connection refused") != std::string::npos);
  CHECK(result.checked_wall_ms > 0);
  CHECK(result.tip == world.first);
  const base::Error error = failure_of([&] { world.cache.refresh("repo_2", world.url, kLong); });
  CHECK(error.code() == base::Code::unavailable);
  CHECK_FALSE(world.cache.exists("repo_2"));
}

TEST_CASE("a missing directory leaves its mirror usable, and is refused without one") {
  World world;
  const std::string path = world.directory / "served/shop";
  const UrlPolicy& policy = world.cache.options().url_policy;
  world.cache.refresh("repo_3", parse_url(path, policy), kLong);
  std::filesystem::rename(path, path + "-gone");
  const RepoUrl gone = parse_url(path, policy);
  const RefreshResult result = world.cache.refresh("repo_3", gone, kLong);
  CHECK(result.stale);
  CHECK(result.stale_reason == "no such directory: " + path);
  CHECK(result.tip == world.first);
  const base::Error error = failure_of([&] { world.cache.refresh("repo_4", gone, kLong); });
  CHECK(error.code() == base::Code::not_found);
}

TEST_CASE("an upstream that lost its repository is not called a wrong URL") {
  World world;
  world.refresh();
  std::filesystem::rename(world.directory / "served/shop", world.directory / "served/moved");
  const base::Error error = failure_of([&] { world.refresh(); });
  CHECK(error.code() == base::Code::not_found);
  CHECK(error.message().starts_with("upstream no longer has this repository, or hides it: "));
  CHECK(error.hint().find("check the URL") == std::string::npos);
  CHECK(error.hint().find("remain usable") != std::string::npos);
  CHECK(world.cache.resolve("repo_1", world.first).commit == world.first);
}

TEST_CASE("problems of an upstream have different errors") {
  World world;
  const auto refresh = [&](const std::string& text) {
    return failure_of([&] {
      world.cache.refresh("repo_9", parse_url(text, world.cache.options().url_policy), kLong);
    });
  };
  std::filesystem::create_directories(world.directory / "served/nothing");
  CHECK(refresh(world.daemon.url("missing")).code() == base::Code::not_found);
  CHECK(refresh(world.directory / "served/nothing").code() == base::Code::not_found);
  git(world.directory.path(), {"init", "-q", world.directory / "served/empty"});
  const base::Error empty = refresh(world.daemon.url("empty"));
  CHECK(empty.code() == base::Code::not_found);
  CHECK(empty.message().find("empty") != std::string::npos);
  git(world.directory.path(),
      {"init", "-q", "--object-format=sha256", world.directory / "served/new"});
  git(world.directory / "served/new", {"commit", "-q", "--allow-empty", "-m", "x"});
  CHECK(refresh(world.daemon.url("new")).code() == base::Code::unsupported);
  Upstream foreign(world.directory / "served/foreign");
  foreign.commit({{"a", "x"}});
  REQUIRE(lchown((foreign.path() + "/.git").c_str(), 12345, 12345) == 0);
  const base::Error owner = refresh(foreign.path());
  CHECK(owner.code() == base::Code::permission_denied);
  CHECK(owner.hint().find("--from") != std::string::npos);
  CHECK(refresh("https://127.0.0.1:1/a/b").code() == base::Code::unavailable);
  CHECK_FALSE(world.cache.exists("repo_9"));
}

TEST_CASE("a repository larger than the limit is refused and leaves nothing behind") {
  World world;
  std::string noise(3 << 20, '\0');
  uint64_t state = 88172645463325252ULL;
  for (char& c : noise) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    c = static_cast<char>(state);
  }
  world.upstream.commit({{"large.bin", noise}});
  RepoCacheOptions options = options_for(world.directory, world.directory / "served");
  options.max_fetch_bytes = 1 << 20;
  RepoCache cache(options);
  CHECK(failure_of([&] { cache.refresh("repo_5", world.url, kLong); }).code() ==
        base::Code::resource_exhausted);
  CHECK_FALSE(cache.exists("repo_5"));
  CHECK_FALSE(base::path_exists(cache.directory("repo_5") + "/git.new"));
}

TEST_CASE("objects that git's checks refuse never enter the store") {
  World world;
  const std::string blob = world.upstream.run({"hash-object", "-w", "--stdin"}, "x");
  const std::string tree = world.upstream.run({"mktree"}, "100644 blob " + blob + "\t.git\n");
  const std::string commit = world.upstream.run({"commit-tree", "-m", "evil", tree});
  world.upstream.run({"branch", "evil", commit});
  CHECK(failure_of([&] { world.refresh(); }).code() == base::Code::invalid_argument);
  CHECK_FALSE(world.cache.exists("repo_1"));
}

TEST_CASE("24 concurrent first refreshes make one clone") {
  World world;
  std::atomic<int> clones{0};
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 24; ++i) {
    threads.emplace_back([&] {
      const RefreshResult result = world.refresh();
      clones += result.cloned;
      good += result.tip == world.first;
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(good == 24);
  CHECK(world.daemon.packs_sent() == 1);
  // The one clone, and one check shared by all that came while it ran; a late starter may need
  // another.
  CHECK(clones >= 1);
  CHECK(world.daemon.connections() < 24);
}

TEST_CASE("a refresh after a push sees it, despite concurrent refreshes") {
  World world;
  world.refresh();
  for (int round = 0; round < 5; ++round) {
    std::atomic<bool> stop{false};
    std::vector<std::thread> noise;
    for (int i = 0; i < 3; ++i) {
      noise.emplace_back([&] {
        while (!stop) world.refresh();
      });
    }
    const std::string pushed = world.upstream.commit({{"a.txt", std::to_string(round)}});
    const std::string seen = world.refresh().tip;
    stop = true;
    for (auto& thread : noise) thread.join();
    CHECK(seen == pushed);
  }
}

TEST_CASE("a mirror is readable by the sandbox whatever the umask") {
  World world;
  const mode_t before = umask(077);
  world.refresh();
  umask(before);
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(world.cache.objects_directory("repo_1"))) {
    const auto mode = entry.status().permissions();
    CHECK((mode & std::filesystem::perms::others_read) != std::filesystem::perms::none);
  }
}

TEST_CASE("refs, tags and ids resolve as a person expects") {
  World world;
  world.upstream.run({"tag", "-a", "-m", "x", "v1"});
  const std::string second = world.upstream.commit({{"a.txt", "second\n"}});
  const std::string blob = world.upstream.run({"rev-parse", "HEAD:a.txt"});
  world.upstream.run({"tag", "blob-tag", blob});
  world.refresh();
  const auto resolve = [&](const std::string& text) { return world.cache.resolve("repo_1", text); };
  CHECK(resolve("").commit == second);
  CHECK(resolve("").is_branch);
  CHECK(resolve("main").ref == "refs/heads/main");
  CHECK(resolve("refs/heads/main").commit == second);
  CHECK(resolve("heads/main").ref == "refs/heads/main");
  CHECK(resolve("v1").commit == world.first);
  CHECK_FALSE(resolve("v1").is_branch);
  CHECK(resolve(second).ref.empty());
  CHECK(resolve(second.substr(0, 7)).commit == second);
  for (const char* text : {"nothing", "refs/heads/", "a..b", "x y", "../../etc/passwd", "abcdef",
                           "-x", "main^", "@{1}"}) {
    INFO(text);
    CHECK(failure_of([&] { resolve(text); }).code() == base::Code::not_found);
  }
  CHECK(failure_of([&] { resolve("nothing"); }).hint() == "its branches: main");
  for (const auto& [text, hint] : std::map<std::string, std::string>{
           {"origin/main", "name it as upstream does: main"},
           {"refs/remotes/origin/main", "name it as upstream does: main"},
           {"origin/nothing", "its branches: main"},
           {"pull/31", "name it pull/31/head"},
           {"refs/pull/31", "name it pull/31/head"},
           {"merge-requests/3", "name it merge-requests/3/head"},
           {"#7", "name it pull/7/head, or on GitLab merge-requests/7/head"},
           {"!7", "name it merge-requests/7/head"},
           {"abcdef0",
            "no fetched branch or tag has a commit with these digits: give all 40 of "
            "its id"},
           {" ", "its branches: main"}}) {
    const base::Error error = failure_of([&] { resolve(text); });
    CHECK(error.message() == "no branch, tag or commit named '" + text + "'");
    CHECK(error.hint() == hint);
  }
  CHECK(failure_of([&] { resolve(blob); }).code() == base::Code::invalid_argument);
  CHECK(failure_of([&] { resolve("blob-tag"); }).code() == base::Code::invalid_argument);
}

TEST_CASE("other refs of upstream are fetched by name, followed, and kept when they are gone") {
  World world;
  const auto pull = [&](const std::string& text) {
    const std::string commit = world.upstream.commit({{"pulled.txt", text}});
    world.upstream.run({"update-ref", "refs/pull/7/head", commit});
    world.upstream.run({"reset", "-q", "--hard", world.first});
    return commit;
  };
  const std::string one = pull("one\n");
  world.refresh();
  const auto resolve = [&](const std::string& text) { return world.cache.resolve("repo_1", text); };
  const auto fetch_more = [&](const std::string& text) {
    world.cache.fetch_more("repo_1", world.url, text, kLong);
  };
  CHECK(failure_of([&] { resolve("pull/7/head"); }).code() == base::Code::not_found);
  CHECK(failure_of([&] { resolve(one); }).code() == base::Code::not_found);
  fetch_more("pull/7/head");
  CHECK(resolve("pull/7/head").commit == one);
  CHECK(resolve("refs/pull/7/head").ref == "refs/pull/7/head");
  CHECK_FALSE(resolve("pull/7/head").is_branch);
  CHECK_FALSE(world.refresh().fetched);  // it is as upstream has it

  const std::string two = pull("two\n");
  CHECK(world.refresh().fetched);
  CHECK(resolve("pull/7/head").commit == two);
  CHECK(resolve(one).commit == one);  // rewritten, and somebody may stand on it
  const auto distance = world.cache.distance("repo_1", one, "refs/pull/7/head");
  CHECK(distance->behind == 1);
  CHECK(distance->lost == 1);

  world.upstream.run({"update-ref", "-d", "refs/pull/7/head"});
  CHECK(world.refresh().fetched);
  CHECK(failure_of([&] { resolve("pull/7/head"); }).code() == base::Code::not_found);
  CHECK(resolve(two).commit == two);
  CHECK_FALSE(world.refresh().fetched);
  world.cache.check("repo_1", kLong);
}

TEST_CASE("a commit is later if the ref has it and the other commit has not") {
  World world;
  const std::string second = world.upstream.commit({{"a.txt", "second\n"}});
  const std::string third = world.upstream.commit({{"a.txt", "third\n"}});
  world.refresh();
  const auto later = [&](const std::string& commit, const std::string& since) {
    return world.cache.is_later("repo_1", commit, since, "refs/heads/main");
  };
  CHECK(later(second, world.first));
  CHECK(later(third, world.first));
  CHECK_FALSE(later(world.first, second));
  CHECK_FALSE(later(second, second));
  CHECK_FALSE(later(std::string(40, 'a'), world.first));
  CHECK_FALSE(world.cache.is_later("repo_1", second, world.first, "refs/heads/none"));
  world.upstream.run({"reset", "-q", "--hard", second});
  world.refresh();
  CHECK_FALSE(later(third, world.first));  // upstream took it back
  const std::string tree = world.upstream.run({"rev-parse", "HEAD^{tree}"});
  CHECK_FALSE(later(tree, world.first));
}

TEST_CASE("named refs are among a workspace's, unless git allows no such name there") {
  World world;
  world.upstream.run({"update-ref", "refs/pull/7/head", world.first});
  world.upstream.run({"update-ref", "refs/changes/34/1234/5", world.first});
  world.refresh();
  for (const char* ref : {"pull/7/head", "refs/changes/34/1234/5"})
    world.cache.fetch_more("repo_1", world.url, ref, kLong);
  const auto has = [&](const std::string& name) {
    return world.cache.workspace_refs("repo_1")->packed_refs.find(" " + name + "\n") !=
           std::string::npos;
  };
  CHECK(has("refs/remotes/origin/pull/7/head"));
  CHECK(has("refs/remotes/origin/changes/34/1234/5"));
  world.upstream.run({"branch", "pull/7"});
  world.upstream.run({"branch", "changes/34/1234/5/x"});
  world.refresh();
  CHECK_FALSE(has("refs/remotes/origin/pull/7/head"));
  CHECK(has("refs/remotes/origin/pull/7"));
  CHECK_FALSE(has("refs/remotes/origin/changes/34/1234/5"));
}

TEST_CASE("the only branch is the default one, whatever other refs there are") {
  World world;
  world.upstream.run({"symbolic-ref", "HEAD", "refs/heads/never-pushed"});
  world.upstream.run({"update-ref", "refs/changes/34/1234/5", world.first});
  CHECK(world.refresh().default_branch == "main");
  world.cache.fetch_more("repo_1", world.url, "refs/changes/34/1234/5", kLong);
  world.upstream.run({"tag", "moved", world.first});
  CHECK(world.refresh().default_branch == "main");
  CHECK(world.cache.resolve("repo_1", "").ref == "refs/heads/main");
}

TEST_CASE("a commit that no ref of upstream has is fetched by its id") {
  World world;
  world.refresh();
  const std::string hidden = world.upstream.commit({{"hidden.txt", "x\n"}});
  world.upstream.run({"reset", "-q", "--hard", world.first});
  world.cache.fetch_more("repo_1", world.url, hidden, kLong);
  CHECK(world.cache.resolve("repo_1", hidden).commit == hidden);
  CHECK_FALSE(world.refresh().fetched);
  CHECK(world.cache.resolve("repo_1", hidden).commit == hidden);

  for (const std::string& text :
       {std::string(40, 'a'), std::string("pull/8/head"), std::string("refs/changes/34/1234/5")}) {
    INFO(text);
    CHECK(RepoCache::can_fetch_more(text));
    const base::Error error =
        failure_of([&] { world.cache.fetch_more("repo_1", world.url, text, kLong); });
    CHECK(error.code() == base::Code::not_found);
  }
  for (const char* text : {"main", "refs/heads/main", "heads/x", "tags/v1", "HEAD", "refs/HEAD",
                           "abcdef1", "pull/*/head", "pull/../x", "a/b:c", "a b/c", "x/y^"}) {
    INFO(text);
    CHECK_FALSE(RepoCache::can_fetch_more(text));
    CHECK(failure_of([&] { world.cache.fetch_more("repo_1", world.url, text, kLong); }).code() ==
          base::Code::invalid_argument);
  }
  world.cache.check("repo_1", kLong);
}

TEST_CASE("the references of a workspace equal git's own packed refs") {
  World world;
  world.upstream.run({"tag", "-a", "-m", "x", "v1"});
  world.upstream.run({"tag", "light"});
  world.upstream.run({"branch", "side/one"});
  world.refresh();
  const auto refs = world.cache.workspace_refs("repo_1");
  CHECK(refs->default_branch == "main");
  const std::string clone = world.directory / "clone";
  git(world.directory.path(), {"clone", "-q", world.directory / "served/shop", clone});
  git(clone, {"symbolic-ref", "--delete", "refs/remotes/origin/HEAD"});
  git(clone, {"checkout", "-q", "--detach"});
  git(clone, {"branch", "-D", "main"});
  git(clone, {"pack-refs", "--all"});
  CHECK(refs->packed_refs == get_file(clone + "/.git/packed-refs"));
  CHECK(world.cache.workspace_refs("repo_1") == refs);
  world.upstream.commit({{"a.txt", "moved\n"}});
  world.refresh();
  CHECK(world.cache.workspace_refs("repo_1")->packed_refs != refs->packed_refs);
}
