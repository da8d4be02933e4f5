// The attacker's view is the same on each isolating backend: the probe prints the same table as on
// lxc, line by line, except for a list of named differences.
#include <set>

#include "contract.h"
#include "probe_table.h"

using namespace moorage;
using tests::Allowed;
using tests::Findings;
using tests::SandboxFixture;

TEST_CASE("an attacker inside has the same view and rights as on lxc, except for listed reasons",
          "[contract]") {
  SandboxFixture here(EACH_BACKEND);
  if (!tests::available(here) || !tests::isolates(here)) return;
  SandboxFixture lxc("lxc");
  tests::results::begin(here.kind());
  if (!tests::available(lxc)) return;
  here.start(1);
  lxc.start(1);
  std::set<std::string> used;
  for (const char* user : {"user", "root"}) {
    if (*user == 'r' && !here.allows_root()) continue;
    CAPTURE(here.kind(), user);
    const auto found = tests::compare(here.kind(), tests::probe(lxc, user),
                                      tests::probe(here, user), tests::allowed_differences());
    CHECK(found.same > 150);  // the probe printed its whole table
    for (const std::string& difference : found.not_allowed) {
      INFO(difference);
      CHECK(difference.empty());
    }
    for (const auto& difference : found.allowed) used.insert(difference.listed);
    if (here.kind() != "lxc") {
      tests::results::add_differences(here.kind(), user, found.allowed);
    }
  }
  for (const Allowed& each : tests::allowed_differences()) {
    CAPTURE(each.line);
    if (each.backend == here.kind() && !each.of_some_kernels) CHECK(used.contains(each.line));
  }
}

TEST_CASE("a difference is allowed only for its backend and line") {
  const Findings lxc{{"mount", "EPERM"}, {"mount:/a", "tmpfs"}, {"same", "ok"}, {"uid", "1"}};
  const Findings here{{"mount", "ok"}, {"mount:/b", "tmpfs"}, {"same", "ok"}, {"uid", "2"}};
  const std::vector<Allowed> allowed{{"docker", "uid", "because"},
                                     {"docker", "mount:*", "as well"},
                                     {"docker", "same", "is the same"}};
  const std::vector<Allowed> on_some_kernels{{"docker", "*", "", true}};
  const auto found = tests::compare("docker", lxc, here, allowed);
  CHECK(found.same == 1);
  CHECK(found.not_allowed == std::vector<std::string>{"mount: on lxc EPERM, here ok"});
  REQUIRE(found.allowed.size() == 3);
  CHECK(found.allowed[0].line == "mount:/a");
  CHECK(found.allowed[0].here == "not there");
  CHECK(found.allowed[2].reason == "because");
  CHECK(found.allowed[0].listed == "mount:*");
  CHECK(found.allowed[2].listed == "uid");
  CHECK(tests::compare("docker-userns", lxc, here, allowed).not_allowed.size() == 4);
  const auto on_some = tests::compare("docker", lxc, here, on_some_kernels);
  CHECK((on_some.not_allowed.empty() && on_some.allowed.empty()));
}
