#include <algorithm>
#include <catch2/catch.hpp>

#include "base/error.h"
#include "config/load.h"
#include "settings_file.h"

using namespace moorage;
using namespace moorage::config;

namespace {

std::vector<PolicyRule> rules_of(const std::string& text) {
  return load_text(text).settings.policy;
}

std::vector<std::string> shown_policy(const Loaded& loaded) {
  std::vector<std::string> lines;
  for (const auto& setting : loaded.shown) {
    if (setting.name.starts_with("policy")) lines.push_back(setting.name + " " + setting.value);
  }
  return lines;
}

}  // namespace

TEST_CASE("rules are read in order with all their fields") {
  const auto loaded = load_text(
      "log: {level: debug}\n"
      "policy:\n"
      "  - min_isolation: userns\n"
      "  - users: [root, 1004]\n"
      "    groups: [root, 7]\n"
      "    labels: {team: infra, tier: \"\"}\n"
      "    backends: [lxc, docker]\n"
      "    default: {backend: docker, runtime: crun, image: host, memory: 2GiB, cpus: 0.5, pids: "
      "100, disk: "
      "1GiB}\n"
      "    max: {memory: 8GiB, cpus: 4, pids: 4096, disk: 50GiB}\n");
  REQUIRE(loaded.settings.policy.size() == 2);
  const PolicyRule& first = loaded.settings.policy[0];
  CHECK(first.place.ends_with("moorage.yaml:3"));
  CHECK(first.min_isolation == "userns");
  CHECK((first.users.empty() && first.groups.empty() && first.backends.empty()));
  CHECK(first.most == PolicyLimits{});
  const PolicyRule& second = loaded.settings.policy[1];
  CHECK(second.place.ends_with("moorage.yaml:4"));
  CHECK(second.users == std::vector<uint32_t>{0, 1004});
  CHECK(second.groups == std::vector<uint32_t>{0, 7});
  CHECK(second.labels == std::map<std::string, std::string>{{"team", "infra"}, {"tier", ""}});
  CHECK(second.backends == std::vector<std::string>{"lxc", "docker"});
  CHECK(second.default_backend == "docker");
  CHECK(second.default_runtime == "crun");
  CHECK(second.default_image == "host");
  CHECK(second.usual == PolicyLimits{2ULL << 30, 0.5, 100, 1ULL << 30});
  CHECK(second.most == PolicyLimits{8ULL << 30, 4, 4096, 50ULL << 30});
  CHECK(loaded.settings.log.level == "debug");
}

TEST_CASE("an empty rule list may be written in several ways") {
  for (const char* text : {"", "policy:\n", "policy: []\n", "policy: ~\n"}) {
    const Loaded loaded = load_text(text);
    CHECK(loaded.settings.policy.empty());
    CHECK(shown_policy(loaded) == std::vector<std::string>{"policy []"});
  }
}

TEST_CASE("shown rules can be read again with the same result") {
  const Loaded loaded = load_text(
      "policy:\n"
      "  - {users: [root, 1004], labels: {team: \"in \\\"fra\\\", \\\\ ~\", a: null-ish, b: "
      "\"null\"}, "
      "max: {memory: 1536MiB}}\n"
      "  - {default: {cpus: 1.5, backend: lxc}, min_isolation: vm}\n");
  const auto lines = shown_policy(loaded);
  REQUIRE(lines.size() == 2);
  CHECK(lines[1] == "policy[2] {default: {backend: lxc, cpus: 1.5}, min_isolation: vm}");
  std::string text = "policy:\n";
  for (const auto& line : lines) text += "  - " + line.substr(line.find(' ') + 1) + "\n";
  CAPTURE(text);
  const Loaded again = load_text(text);
  CHECK(shown_policy(again) == lines);
  CHECK(again.settings.policy[0].labels == loaded.settings.policy[0].labels);
  CHECK(again.settings.policy[0].users == loaded.settings.policy[0].users);
  const auto source = std::find_if(loaded.shown.begin(), loaded.shown.end(),
                                   [](const auto& one) { return one.name == "policy[2]"; });
  CHECK(source->source.ends_with("moorage.yaml:3"));
}

TEST_CASE("an unknown key of a rule is refused with its place and the nearest known one") {
  CHECK(refusal("policy:\n  - usrs: [root]\n    backends: [lxc]\n") ==
        ":2:5: unknown key \"usrs\" in a rule of policy | Did you mean \"users\"?");
  CHECK(refusal("policy:\n  - max: {memry: 1GiB}\n") ==
        ":2:11: unknown key \"memry\" in \"max\" of a rule | Did you mean \"memory\"?");
  CHECK(refusal("policy:\n  - max: {image: host}\n") ==
        ":2:11: unknown key \"image\" in \"max\" of a rule | Allowed keys: memory, cpus, pids, "
        "disk.");
  CHECK(refusal("policy:\n  - default:\n      quux: 1\n") ==
        ":3:7: unknown key \"quux\" in \"default\" of a rule | Allowed keys: backend, runtime, "
        "image, network, memory, "
        "cpus, pids, disk.");
  CHECK(refusal("polcy: []\n") == ":1:1: unknown setting \"polcy\" | Did you mean \"policy\"?");
  CHECK(refusal("policy:\n  - backends: [lxc]\n    backends: [docker]\n") ==
        ":3:5: \"backends\" is set twice");
}

TEST_CASE("unknown users and groups are refused with their place") {
  CHECK(refusal("policy:\n  - users: [root, no-such-user]\n    backends: [lxc]\n") ==
        ":2:19: there is no user \"no-such-user\" on this host | `getent passwd` lists them; a "
        "number "
        "needs no entry.");
  CHECK(refusal("policy:\n  - groups: [no-such-group]\n    backends: [lxc]\n") ==
        ":2:14: there is no group \"no-such-group\" on this host | `getent group` lists them; a "
        "number "
        "needs no entry.");
  CHECK(refusal("policy:\n  - users: [4294967295]\n    backends: [lxc]\n") ==
        ":2:13: \"4294967295\" is not from 0 to 4294967294");
}

TEST_CASE("a value of a rule that is wrong is refused with its place") {
  CHECK(refusal("policy:\n  - min_isolation: strong\n")
            .starts_with(":2:20: min_isolation: \"strong\" is not one of none, container, userns"));
  CHECK(refusal("policy:\n  - max: {memory: 8GX}\n")
            .starts_with(":2:19: memory: \"8GX\" is not a size"));
  CHECK(refusal("policy:\n  - max: {memory: 1MiB}\n")
            .starts_with(":2:19: memory: \"1MiB\" is not from 16MiB"));
  CHECK(
      refusal("policy:\n  - max: {pids: 2}\n").starts_with(":2:17: pids: \"2\" is not from 4 to"));
  CHECK(refusal("policy:\n  - max: {cpus: none}\n") == ":2:17: cpus: \"none\" is not a number");
  CHECK(
      refusal("policy:\n  - max: {disk: 0}\n").starts_with(":2:17: disk: \"0\" is not from 1MiB"));
  CHECK(refusal("policy:\n  - backends: [LXC]\n") == ":2:16: \"LXC\" is not an allowed name");
  CHECK(refusal("policy:\n  - labels: {\"a b\": c}\n    backends: [lxc]\n")
            .starts_with(":2:14: a label's key is"));
  CHECK(refusal("policy:\n  - labels: {team: \"a\\nb\"}\n    backends: [lxc]\n")
            .starts_with(":2:20: a label's value is"));
}

TEST_CASE("a rule of a wrong shape is refused with its place") {
  CHECK(refusal("policy: strict\n") ==
        ":1:9: policy must be a list of rules | Each begins with a dash: - backends: [lxc]");
  CHECK(refusal("policy:\n  max: {cpus: 1}\n").starts_with(":2:3: policy must be a list of rules"));
  CHECK(refusal("policy: [lxc]\n").starts_with(":1:10: a rule in policy consists"));
  CHECK(refusal("policy:\n  - backends: lxc\n") == ":2:15: \"backends\" must be a list: [a, b]");
  CHECK(refusal("policy:\n  - users: []\n    backends: [lxc]\n") ==
        ":2:12: \"users\" must be a list: [a, b] | To leave it unrestricted, omit it.");
  CHECK(refusal("policy:\n  - backends: [[lxc]]\n") ==
        ":2:16: \"backends\" must be a list of plain values");
  CHECK(refusal("policy:\n  - backends:\n") == ":2:5: \"backends\" has no value");
  CHECK(refusal("policy:\n  - max: {cpus: [1]}\n") == ":2:17: \"cpus\" must be one value");
  CHECK(refusal("policy:\n  - max: 4\n").starts_with(":2:10: \"max\" must be a map like"));
  CHECK(refusal("policy:\n  - labels: {team: ~}\n    backends: [lxc]\n")
            .starts_with(":2:14: label \"team\" must have one value"));
  CHECK(refusal("policy:\n  - [a]: b\n") == ":2:5: a key must be a plain word");
}

TEST_CASE("a rule without effect, or one that contradicts itself, is refused") {
  CHECK(refusal("policy:\n  - backends: [lxc]\n  - users: [root]\n")
            .starts_with(":3:5: this rule has no effect"));
  CHECK(refusal("policy:\n  - {}\n").starts_with(":2:5: this rule has no effect"));
  CHECK(refusal("policy:\n  - backends: [lxc]\n    default: {backend: docker}\n") ==
        ":3:14: the default backend \"docker\" is not among the backends of the same rule");
  CHECK(refusal("policy:\n  - default: {runtime: crun}\n") ==
        ":2:14: a default runtime needs a default backend | Add the backend: {backend: docker, "
        "runtime: crun}");
  CHECK(refusal("policy:\n  - default: {pids: 200}\n    max: {pids: 100}\n")
            .starts_with(":2:14: pids: the rule's default exceeds its max"));
  CHECK(rules_of("policy:\n  - {default: {pids: 100}, max: {pids: 100}}\n").size() == 1);
}

TEST_CASE("an alias expands to its value, within a limit") {
  CHECK(rules_of("policy:\n  - &a {max: {cpus: 1}}\n  - *a\n").size() == 2);
  std::string bomb = "policy:\n  - backends: &a [" + std::string("x");
  for (int n = 0; n < 999; ++n) bomb += ",x";
  bomb += "]\n";
  for (const char* next : {"b", "c"}) {
    bomb += "  - backends: &" + std::string(next) + " [*a";
    for (int n = 0; n < 99; ++n) bomb += ", *a";
    bomb += "]\n";
  }
  CHECK(refusal(bomb).find("more than 10000 values") != std::string::npos);
  CHECK(refusal("policy: [[[[[[[lxc]]]]]]]\n").find("nested too deeply") != std::string::npos);
  CHECK(refusal("policy: &a [*a]\n").find("nested too deeply") != std::string::npos);
}

TEST_CASE("rules come only from the file") {
  CHECK_THROWS_WITH(load({.file = "/dev/null", .overrides = {{"policy", "[]"}}}),
                    "--set cannot set policy, a list of rules");
  const Loaded loaded = load_text("", {{"MOORAGE_POLICY", "[]"}});
  CHECK(loaded.unknown_variables == std::vector<std::string>{"MOORAGE_POLICY"});
}
