#include "workspace/verbs/sync.h"

#include <catch2/catch.hpp>

namespace moorage::workspace {
namespace {

using Texts = std::vector<std::string>;
const std::string kOne(40, '1');
const std::string kTwo(40, '2');

}  // namespace

TEST_CASE("references are read from lines of git; other lines are skipped") {
  const auto found =
      parse_references("# pack-refs with: peeled\n" + kOne + " refs/tags/v1\n^" + kTwo + "\n" +
                       kTwo + " refs/heads/a b\nshort refs/x\n" + kOne + " ");
  CHECK(found == References{{"refs/heads/a b", kTwo}, {"refs/tags/v1", kOne}});
}

TEST_CASE("remote branches become upstream's; tags are only added") {
  const References upstream{{"refs/remotes/origin/main", kTwo},
                            {"refs/remotes/origin/a", kOne},
                            {"refs/remotes/origin/same", kOne},
                            {"refs/tags/v1", kTwo},
                            {"refs/tags/v2", kTwo},
                            {"refs/tags/own/nested", kTwo},
                            {"refs/tags/dir", kTwo},
                            {"refs/remotes/origin/HEAD/odd", kTwo},
                            {"refs/remotes/origin/HEADLINE", kTwo},
                            {"refs/heads/agent", kTwo}};
  const References inside{{"refs/remotes/origin/HEAD", kOne},
                          {"refs/remotes/origin/main", kOne},
                          {"refs/remotes/origin/same", kOne},
                          {"refs/remotes/origin/\x1b[2J", kOne},
                          {"refs/tags/v1", kOne},
                          {"refs/tags/own", kOne},
                          {"refs/tags/dir/below", kOne},
                          {"refs/heads/main", kOne}};
  const auto changes = changes_between(inside, upstream, "refs/remotes/origin/main");
  CHECK(changes.updates == Texts{"update refs/remotes/origin/HEADLINE " + kTwo + "\n",
                                 "update refs/remotes/origin/a " + kOne + "\n",
                                 "update refs/remotes/origin/main " + kTwo + "\n"});
  CHECK(changes.tags == Texts{"update refs/tags/v2 " + kTwo + "\n"});
  CHECK(changes.removals == Texts{"delete refs/remotes/origin/\x1b[2J\n"});
  CHECK(changes.objects == Texts{kTwo, kOne, kTwo, kTwo});
  CHECK(changes.kept_tags == 3);
  CHECK(changes.all == 5);
  REQUIRE(changes.texts.size() == 5);
  CHECK(changes.texts[0] == "origin/main 1111111 -> 2222222");
  CHECK(changes.texts[2] == "origin/a is new");
  CHECK(changes.texts[3] == "tag v2 is new");
  CHECK(changes.texts[4].find('\x1b') == std::string::npos);
}

TEST_CASE("of many changes a few are named, the default branch first") {
  References upstream;
  for (int n = 0; n < 20; ++n) upstream["refs/remotes/origin/b" + std::to_string(n)] = kOne;
  const auto changes = changes_between({}, upstream, "refs/remotes/origin/b9");
  CHECK(changes.all == 20);
  CHECK(changes.texts.size() == 5);
  CHECK(changes.texts[0] == "origin/b9 is new");
}

}  // namespace moorage::workspace
