#include <catch2/catch.hpp>

#include "config/load.h"
#include "config/remote_backends.h"
#include "settings_file.h"

using namespace moorage;
using namespace moorage::config;

namespace {

std::string shown(const Loaded& loaded, const std::string& name) {
  for (const ShownSetting& setting : loaded.shown)
    if (setting.name == name)
      return setting.value + " " + setting.source.substr(setting.source.rfind('/') + 1);
  return {};
}

std::string host_refusal(const std::string& host) {
  return refusal("backends: {ssh: {hosts: [" + host + "]}}\n");
}

}  // namespace

TEST_CASE("without the section there is no remote backend") {
  for (const char* text : {"", "backends:\n", "backends: {}\n"}) {
    const Loaded loaded = load_text(text);
    CHECK_FALSE(loaded.settings.backends.ssh);
    CHECK_FALSE(loaded.settings.backends.e2b);
    CHECK_FALSE(loaded.settings.backends.daytona);
    CHECK(loaded.settings.remote.sync_interval_s == 10);
    CHECK(loaded.settings.remote.start_deadline_s == 600);
    CHECK(shown(loaded, "backends") == "{} default");
  }
}

TEST_CASE("hosts for ssh are read, and shown as they can be read again") {
  const std::string text =
      "backends:\n"
      "  ssh:\n"
      "    config_file: /etc/moorage/ssh_config\n"
      "    hosts:\n"
      "      - {name: build1, destination: agent@build1.example, max_sandboxes: 4, directory: /m}\n"
      "      - name: spare\n"
      "        destination: ssh://me@[::1]:2222\n"
      "remote: {sync_interval_s: 1m, start_deadline_s: 30}\n";
  const Loaded loaded = load_text(text);
  const auto& ssh = *loaded.settings.backends.ssh;
  CHECK(ssh.config_file == "/etc/moorage/ssh_config");
  REQUIRE(ssh.hosts.size() == 2);
  CHECK(ssh.hosts[0].name == "build1");
  CHECK(ssh.hosts[0].destination == "agent@build1.example");
  CHECK(ssh.hosts[0].max_sandboxes == 4);
  CHECK(ssh.hosts[0].directory == "/m");
  CHECK(ssh.hosts[1].destination == "ssh://me@[::1]:2222");
  CHECK(ssh.hosts[1].max_sandboxes == 8);
  CHECK(loaded.settings.remote.sync_interval_s == 60);
  CHECK(loaded.settings.remote.start_deadline_s == 30);
  CHECK(shown(loaded, "backends").empty());
  const std::string line = shown(loaded, "backends.ssh");
  CHECK(line ==
        "{config_file: /etc/moorage/ssh_config, hosts: [{name: build1, destination: "
        "\"agent@build1.example\", max_sandboxes: 4, directory: /m}, {name: spare, destination: "
        "\"ssh://me@[::1]:2222\"}]} moorage.yaml:3");
  const std::string value = line.substr(0, line.rfind(' '));
  const Loaded again = load_text("backends:\n  ssh: " + value + "\n");
  CHECK(shown(again, "backends.ssh") == value + " moorage.yaml:2");
}

TEST_CASE("providers are read with the settings of their drivers") {
  const Loaded loaded = load_text(
      "backends:\n"
      "  e2b: {key_file: /etc/moorage/e2b.key, api_url: \"http://127.0.0.1:3000\", "
      "template: team/base:v1, max_sandboxes: 2}\n"
      "  daytona:\n"
      "    credential: daytona.prod\n"
      "    image: ghcr.io/acme/base@sha256:00\n"
      "    cpu: 4\n"
      "    auto_stop_min: 30\n"
      "    allow_plain_http: true\n"
      "    api_url: http://daytona.example/api\n");
  const auto& e2b = *loaded.settings.backends.e2b;
  CHECK(e2b.key_file == "/etc/moorage/e2b.key");
  CHECK(e2b.max_sandboxes == 2);
  CHECK(e2b.driver.size() == 2);
  CHECK(std::get<std::string>(e2b.driver.at("api_url")) == "http://127.0.0.1:3000");
  CHECK(std::get<std::string>(e2b.driver.at("template")) == "team/base:v1");
  CHECK(e2b.credential.empty());
  const auto& daytona = *loaded.settings.backends.daytona;
  CHECK(daytona.credential == "daytona.prod");
  CHECK(daytona.max_sandboxes == 8);
  CHECK(std::get<int64_t>(daytona.driver.at("cpu")) == 4);
  CHECK(std::get<int64_t>(daytona.driver.at("auto_stop_min")) == 30);
  CHECK(std::get<bool>(daytona.driver.at("allow_plain_http")));
  CHECK(std::get<std::string>(daytona.driver.at("image")) == "ghcr.io/acme/base@sha256:00");
}

TEST_CASE("an unknown or missing key of a backend is refused with its place") {
  CHECK(refusal("backends:\n  shh: {}\n") ==
        ":2:3: unknown key \"shh\" in backends | Did you mean \"ssh\"?");
  CHECK(refusal("backends:\n  ssh:\n    host: []\n") ==
        ":3:5: unknown key \"host\" in backends.ssh | Did you mean \"hosts\"?");
  CHECK(refusal("backends:\n  ssh:\n    hosts:\n      - {name: a, port: 22}\n") ==
        ":4:19: unknown key \"port\" in a host of backends.ssh | Allowed keys: name, destination, "
        "directory, max_sandboxes.");
  CHECK(refusal("backends:\n  e2b:\n    key_file: /k\n    snapshot: x\n")
            .starts_with(":4:5: unknown key \"snapshot\" in backends.e2b | Allowed keys: "));
  CHECK(
      refusal("backends:\n  e2b: {api_url: \"https://e2b.example\"}\n") ==
      ":2:8: backends.e2b has no credential | Name the credential of root that has the API key, or "
      "its file as key_file.");
  CHECK(refusal("backends:\n  e2b: {key_file: /k, credential: k}\n")
            .starts_with(":2:8: backends.e2b has both a credential and a key_file"));
  CHECK(refusal("backends:\n  ssh: {config_file: /c}\n")
            .starts_with(":2:8: backends.ssh has no hosts"));
  CHECK(refusal("backends: [ssh]\n") ==
        ":1:11: \"backends\" must be a section with the keys ssh, e2b, daytona");
  CHECK(refusal("backends:\n  ssh: x\n").starts_with(":2:8: \"ssh\" must be a section"));
  CHECK(refusal("backends:\n  ssh:\n").starts_with(":2:3: \"ssh\" has no value"));
  CHECK(refusal("backend: {}\n") ==
        ":1:1: unknown setting \"backend\" | Did you mean \"backends\"?");
}

TEST_CASE("an invalid host is refused, also one that ssh would take for an option") {
  CHECK(host_refusal("{name: a, destination: -oProxyCommand=x}")
            .starts_with(":1:49: destination: \"-oProxyCommand=x\" is not a destination of ssh"));
  for (const char* wrong : {"\"\"", "me@-x", "\"a b\"", "\"a;b\"", "\"a$(b)\"", "\"a\\nb\""})
    CHECK(host_refusal("{name: a, destination: " + std::string(wrong) + "}")
              .find("is not a destination") != std::string::npos);
  for (const std::string wrong : {"\"\"", "-a", "Build", "a.b", "a_b"})
    CHECK(host_refusal("{destination: a, name: " + wrong + "}").find("is not a name of 1-32") !=
          std::string::npos);
  CHECK(
      host_refusal("{destination: a, name: " + std::string(33, 'a') + "}").find("is not a name") !=
      std::string::npos);
  CHECK(host_refusal("{name: a}") == ":1:26: a host needs a name and a destination");
  CHECK(host_refusal("{name: a, destination: b}, {name: a, destination: c}") ==
        ":1:53: there are two hosts named \"a\"");
  CHECK(host_refusal("{name: a, destination: b, max_sandboxes: 0}")
            .ends_with("max_sandboxes: \"0\" is not from 1 to 10000"));
  for (const std::string wrong :
       {"relative", "/", "~/", "~user/x", "/a/../b", "\"/a b\"", "\"/$(id)\""})
    CHECK(host_refusal("{name: a, destination: b, directory: " + wrong + "}")
              .find("is not a directory on that machine") != std::string::npos);
  CHECK(host_refusal("a").find("a host is a map") != std::string::npos);
}

TEST_CASE("a provider's setting that would leak its key or forge a request is refused") {
  const auto e2b = [](const std::string& setting) {
    return refusal("backends:\n  e2b:\n    key_file: /k\n    " + setting + "\n");
  };
  CHECK(e2b("api_url: http://e2b.example") ==
        ":4:14: api_url: http sends the key unencrypted | Use https, or set allow_plain_http: "
        "true in a network that you trust.");
  const std::string password = e2b("api_url: https://me:hunter2@e2b.example");
  CHECK(password.starts_with(":4:14: api_url: a URL with a user name or password"));
  CHECK(password.find("hunter2") == std::string::npos);
  CHECK(e2b("api_url: ftp://e2b.example").find("is not a URL such as") != std::string::npos);
  CHECK(e2b("template: \"a\\nb\"").find("is not a name") != std::string::npos);
  CHECK(e2b("credential: Not/one").find("is not a credential's name") != std::string::npos);
  CHECK(e2b("key: secret").find("unknown key \"key\"") != std::string::npos);
  CHECK(e2b("ca_file: ca.pem").find("is not an absolute path") != std::string::npos);
  CHECK(refusal("backends: {daytona: {key_file: /k, snapshot: a, image: b}}\n")
            .find("both a snapshot and an image") != std::string::npos);
  CHECK(refusal("remote: {sync_interval_s: 0}\n").find("is not from 1 to 3600") !=
        std::string::npos);
}

TEST_CASE("--set refers to the file for remote backends") {
  for (const char* name : {"backends", "backends.ssh"})
    CHECK_THROWS_WITH(load({.file = "/dev/null", .overrides = {{name, "x"}}}),
                      "--set cannot set backends, a section with structure");
}
