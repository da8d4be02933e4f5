#include "base/wire/link_config.h"

#include <catch2/catch.hpp>

#include "base/error.h"

using namespace moorage;

TEST_CASE("a link's configuration reads back as it was written", "[base][link]") {
  base::LinkConfig config;
  config.name = "moorage-ab12-sb_7";
  config.directory = "/var/lib/moorage/sandboxes/sb_7";
  config.generation = 7;
  config.driver = "ssh";
  config.settings =
      base::ssh_settings_text({"spare", "me@spare.example", "/etc/moorage/ssh.conf", "~/m"});
  config.first_id = 1'000'000'000;
  config.base = {"moorage-ab12-repo_3-c0ffee", "/.moorage/remote/base"};
  config.kept_trees = "/var/lib/moorage/remote/volumes/daytona";
  config.sync_interval_s = 3;
  config.machine_is_ours = true;
  config.provider_rules = {{"web.example", ".other.example"}, "why", "hint"};
  config.memory_bytes = 1ULL << 40;
  config.pids = 300;
  config.cpus = 1.5;
  const auto read = base::parse_link_config(base::link_config_text(config));
  CHECK(read.name == config.name);
  CHECK(read.directory == config.directory);
  CHECK(read.generation == 7);
  CHECK(read.driver == "ssh");
  const auto ssh = base::parse_ssh_settings(read.settings);
  CHECK(ssh.host == "spare");
  CHECK(ssh.destination == "me@spare.example");
  CHECK(ssh.config_file == "/etc/moorage/ssh.conf");
  CHECK(ssh.directory == "~/m");
  CHECK(read.first_id == 1'000'000'000);
  CHECK(read.base.key == config.base.key);
  CHECK(read.base.path == config.base.path);
  CHECK(read.objects.key.empty());
  CHECK(read.kept_trees == config.kept_trees);
  CHECK(read.certificates.key.empty());
  CHECK(read.sync_interval_s == 3);
  CHECK(read.machine_is_ours);
  CHECK(read.provider_rules.hosts == config.provider_rules.hosts);
  CHECK(read.provider_rules.refusal == "why");
  CHECK(read.provider_rules.hint == "hint");
  CHECK(read.memory_bytes == 1ULL << 40);
  CHECK(read.pids == 300);
  CHECK(read.cpus == 1.5);
}

TEST_CASE("layers keep their order, and a field may be empty", "[base][link]") {
  const auto read = base::parse_link_layers(base::link_layers_text({{"/a", ""}, {"/b", "/c"}}));
  REQUIRE(read.size() == 2);
  CHECK(read[0].tree == "/a");
  CHECK(read[0].home.empty());
  CHECK(read[1].home == "/c");
}

TEST_CASE("a hostile status of a link is refused or bounded", "[base][link]") {
  base::LinkStatus status;
  status.connected = true;
  status.reason = std::string(1 << 20, 'x');
  status.overlay = std::string(1000, 'y');
  status.network = std::string(1 << 20, 'n');
  status.limits.assign(1000, std::string(1000, 'z'));
  const auto read = base::parse_link_status(base::link_status_text(status));
  CHECK(read.connected);
  CHECK(read.reason.size() <= 2000);
  CHECK(read.overlay.size() <= 16);
  CHECK(read.network.size() <= 2000);
  CHECK(read.limits.empty());
  status.limits = {"pids", "disk", "memory"};
  CHECK(base::parse_link_status(base::link_status_text(status)).limits ==
        std::vector<std::string>{"pids", "memory"});
  status.limits.assign(1000, "cpus");
  CHECK(base::parse_link_status(base::link_status_text(status)).limits.size() == 3);
  for (const char* text : {"", "{}", "[]", "{\"connected\":1}", "nonsense"}) {
    INFO(text);
    CHECK_THROWS_AS(base::parse_link_status(text), Error);
  }
}
