#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <set>

#include "base/error.h"
#include "config/load.h"
#include "config/table.h"
#include "settings_file.h"

using namespace moorage;
using namespace moorage::config;

namespace {

const ShownSetting& shown(const Loaded& loaded, const std::string& name) {
  const auto found =
      std::find_if(loaded.shown.begin(), loaded.shown.end(),
                   [&](const ShownSetting& setting) { return setting.name == name; });
  REQUIRE(found != loaded.shown.end());
  return *found;
}

}  // namespace

TEST_CASE("an empty file leaves every default") {
  for (const char* text : {"", "# nothing\n", "store:\napi:\n", "---\n"}) {
    const Loaded loaded = load_text(text);
    CHECK(loaded.settings.store.directory == "/var/lib/moorage");
    CHECK(loaded.settings.api.socket == "/run/moorage/mooraged.sock");
    CHECK(loaded.settings.api.group == "moorage");
    CHECK(loaded.settings.repo.max_fetch_bytes == 20ULL << 30);
    CHECK(loaded.settings.ids.disk_first_id == 1'900'000'000);
    CHECK(loaded.settings.sandbox.backend == "lxc");
    CHECK(loaded.settings.workspace.undelete_window_s == 604'800);
    for (const ShownSetting& setting : loaded.shown) CHECK(setting.source == "default");
  }
}

TEST_CASE("the file is read with its types, sizes and times") {
  const Loaded loaded = load_text(
      "store:\n"
      "  directory: /srv/moorage/\n"
      "api: {max_connections: 9, max_body_bytes: 512 MiB}\n"
      "log:\n"
      "  json: true\n"
      "  level: warning\n"
      "repo:\n"
      "  file_roots: [/srv/git, /home]\n"
      "  fetch_deadline_s: 5m\n"
      "  https_proxy: http://proxy.example:3128\n"
      "  no_proxy: [git.example, .internal]\n"
      "sandbox:\n"
      "  cpus: 0.5\n"
      "  memory_bytes: 1073741824\n"
      "workspace:\n"
      "  undelete_window_s: \"2h\"\n"
      "libexec_directory: /opt/x\n");
  CHECK(loaded.settings.store.directory == "/srv/moorage");
  CHECK(loaded.settings.api.max_connections == 9);
  CHECK(loaded.settings.api.max_body_bytes == 512ULL << 20);
  CHECK(loaded.settings.log.json);
  CHECK(loaded.settings.log.level == "warning");
  CHECK(loaded.settings.repo.file_roots == std::vector<std::string>{"/srv/git", "/home"});
  CHECK(loaded.settings.repo.fetch_deadline_s == 300);
  CHECK(loaded.settings.repo.https_proxy == "http://proxy.example:3128");
  CHECK(loaded.settings.repo.no_proxy == std::vector<std::string>{"git.example", ".internal"});
  CHECK(loaded.settings.repo.ca_file.empty());
  CHECK(loaded.settings.sandbox.cpus == 0.5);
  CHECK(loaded.settings.sandbox.memory_bytes == 1ULL << 30);
  CHECK(loaded.settings.workspace.undelete_window_s == 7200);
  CHECK(loaded.settings.libexec_directory == "/opt/x");
  CHECK(shown(loaded, "repo.file_roots").value == "[/srv/git, /home]");
  CHECK(shown(loaded, "sandbox.memory_bytes").value == "1GiB");
  CHECK(shown(loaded, "sandbox.memory_bytes").unit == "bytes");
  CHECK(shown(loaded, "sandbox.cpus").value == "0.5");
  CHECK(shown(loaded, "sandbox.cpus").source.ends_with("moorage.yaml:13"));
  CHECK(shown(loaded, "sandbox.pids").source == "default");
}

TEST_CASE("the environment overrides the file, and unknown variables are reported") {
  const Loaded loaded = load_text("exec:\n  default_timeout_s: 9\nsandbox:\n  pids: 100\n",
                                  {{"MOORAGE_EXEC_DEFAULT_TIMEOUT_S", "1h"},
                                   {"MOORAGE_REPO_FILE_ROOTS", "/a:/b"},
                                   {"MOORAGE_LIBEXEC_DIRECTORY", "/opt/libexec"},
                                   {"MOORAGE_SOMETHING", "x"},
                                   {"MOORAGE_SOCKET", "/run/x"},
                                   {"MOORAGE_CRASH_AT", "a.b"},
                                   {"PATH", "/bin"}});
  CHECK(loaded.settings.exec.default_timeout_s == 3600);
  CHECK(loaded.settings.sandbox.pids == 100);
  CHECK(loaded.settings.repo.file_roots == std::vector<std::string>{"/a", "/b"});
  CHECK(loaded.settings.libexec_directory == "/opt/libexec");
  CHECK(shown(loaded, "exec.default_timeout_s").source ==
        "environment MOORAGE_EXEC_DEFAULT_TIMEOUT_S");
  CHECK(loaded.unknown_variables == std::vector<std::string>{"MOORAGE_SOMETHING"});
  CHECK(refusal("", {{"MOORAGE_SANDBOX_PIDS", "many"}}) ==
        "environment MOORAGE_SANDBOX_PIDS: sandbox.pids: \"many\" is not an integer");
}

TEST_CASE("--set overrides all, and is checked like the file") {
  const auto with = [](const std::string& name, const std::string& value) {
    return load({.file = "/dev/null",
                 .environment = {{"MOORAGE_SANDBOX_PIDS", "100"}},
                 .overrides = {{name, value}}});
  };
  const Loaded loaded = with("sandbox.pids", "200");
  CHECK(loaded.settings.sandbox.pids == 200);
  CHECK(shown(loaded, "sandbox.pids").source == "--set");
  CHECK(with("repo.file_roots", "/a:/b").settings.repo.file_roots ==
        std::vector<std::string>{"/a", "/b"});
  CHECK_THROWS_WITH(with("store.bogus", "1"), "--set: unknown setting \"store.bogus\"");
  CHECK_THROWS_WITH(with("sandbox.pids", "many"),
                    "--set: sandbox.pids: \"many\" is not an integer");
}

TEST_CASE("an unknown key is refused with its place and the nearest known one") {
  CHECK(refusal("store:\n  directry: /x\n") ==
        ":2:3: unknown setting \"store.directry\" | Did you mean \"store.directory\"?");
  CHECK(refusal("log:\n  json: true\nstor:\n  directory: /x\n") ==
        ":3:1: unknown setting \"stor\" | Did you mean \"store\"?");
  CHECK(refusal("store:\n  socket: /x\n") ==
        ":2:3: unknown setting \"store.socket\" | Did you mean \"api.socket\"?");
  CHECK(refusal("libexec_dir: /x\n") ==
        ":1:1: unknown setting \"libexec_dir\" | `mooraged --config /dev/null --show-config` lists "
        "all settings.");
  CHECK(refusal("quux: [1]\n") ==
        ":1:1: unknown setting \"quux\" | `mooraged --config /dev/null --show-config` lists all "
        "settings.");
}

TEST_CASE("a repeated key is refused at its second place") {
  CHECK(refusal("log:\n  json: true\n  json: false\n") == ":3:3: \"log.json\" is set twice");
  CHECK(refusal("log:\n  json: true\nlog:\n  level: info\n") == ":3:1: \"log\" is set twice");
}

TEST_CASE("a wrong type or shape is refused with its place") {
  CHECK(refusal("log:\n  json: maybe\n") == ":2:9: log.json: \"maybe\" is not true or false");
  CHECK(refusal("log:\n  json: yes\n") == ":2:9: log.json: \"yes\" is not true or false");
  CHECK(refusal("daemon:\n  threads: [1, 2]\n") == ":2:12: daemon.threads must be one value");
  CHECK(refusal("daemon:\n  threads: {a: 1}\n") == ":2:12: daemon.threads must be one value");
  CHECK(refusal("repo:\n  file_roots: /srv\n") ==
        ":2:15: repo.file_roots must be a list: [/a, /b]");
  CHECK(refusal("repo:\n  file_roots: [[/srv]]\n") ==
        ":2:16: \"repo.file_roots\" must be a list of plain values");
  CHECK(refusal("store: /x\n") == ":1:8: \"store\" must be a section with \"key: value\" lines");
  CHECK(refusal("store:\n  directory:\n") == ":2:3: \"store.directory\" has no value");
  CHECK(refusal("store:\n  directory: ~\n") == ":2:3: \"store.directory\" has no value");
  CHECK(refusal("- a\n") == ":1:1: the file must hold settings as \"key: value\"");
  CHECK(refusal("log: {}\n---\nlog: {}\n").find("the file must contain only one YAML document") !=
        std::string::npos);
  CHECK(refusal(",~") == ":1:1: the file is not valid YAML");  // yaml-cpp would loop forever
  for (const char* value : {"{a: 1}", "[a]", "[{a: 1}]", "[[a]]", "1"}) {
    CHECK(refusal(std::string("polcy: ") + value + "\n") ==
          ":1:1: unknown setting \"polcy\" | Did you mean \"policy\"?");
  }
  const auto says = [](const std::string& text, const std::string& why) {
    CAPTURE(text);
    const std::string said = refusal(text);
    CHECK(said.starts_with(":"));
    CHECK(said.ends_with(why));
  };
  says("store: [\n", "this list has no closing ]");
  says("store: {a: b\n", "this map has no closing }");
  says("store:\n  directory: a: b\n",
       "a colon is not allowed here; put quotes around the text, or check the indentation");
  says("store:\n  directory: *x\n", "a text that begins with * needs quotes");
  says("store:\n  directory: @x\n", "this character needs quotes");
  says("store: }\n", "this bracket closes nothing");
  CHECK(refusal("store:\n\tdirectory: /x\n") == ":2:1: tabs are not allowed in YAML; use spaces");
}

TEST_CASE("values out of range and unknown units are refused") {
  CHECK(refusal("daemon: {threads: 1}\n") == ":1:19: daemon.threads: \"1\" is not from 2 to 1024");
  CHECK(refusal("daemon: {threads: -4}\n") == ":1:19: daemon.threads: \"-4\" is not an integer");
  CHECK(refusal("daemon: {threads: 4 threads}\n").find("is not an integer") != std::string::npos);
  CHECK(refusal("sandbox: {memory_bytes: 4GX}\n").find("a size, like 512M, 8G or 8GiB") !=
        std::string::npos);
  CHECK(load_text("sandbox: {memory_bytes: 8G}\n").settings.sandbox.memory_bytes == 8ULL << 30);
  CHECK(refusal("sandbox: {memory_bytes: 1MiB}\n").find("is not from 16MiB to 1024TiB") !=
        std::string::npos);
  CHECK(refusal("sandbox: {memory_bytes: 99999999999TiB}\n").find("is not from 16MiB") !=
        std::string::npos);
  CHECK(refusal("sandbox: {cpus: nan}\n").find("is not from 0.01 to 4096") != std::string::npos);
  CHECK(refusal("sandbox: {cpus: 2x}\n").find("is not a number") != std::string::npos);
  CHECK(refusal("exec: {default_timeout_s: 5 weeks}\n").find("is not a time") != std::string::npos);
  CHECK(refusal("log: {level: loud}\n").find("allowed name: debug, info, warning, error") !=
        std::string::npos);
  CHECK(refusal("store: {directory: moorage}\n").find("is not an absolute path") !=
        std::string::npos);
  CHECK(refusal("repo: {https_proxy: \"proxy:3128\"}\n").find("is not a proxy") !=
        std::string::npos);
  CHECK(refusal("repo: {https_proxy: \"http://me:secret@proxy\"}\n") ==
        ":1:21: repo.https_proxy: a proxy with a user name or password is not supported");
  CHECK(refusal("repo: {no_proxy: [\"a,b\"]}\n").find("is not a host") != std::string::npos);
  CHECK(refusal("store: {directory: /a/../b}\n").find("is not a path without . and ..") !=
        std::string::npos);
}

TEST_CASE("overlapping id ranges and a disallowed backend are refused") {
  CHECK(refusal("ids: {disk_first_id: 1000065536}\n").find("overlap those of sandboxes") !=
        std::string::npos);
  CHECK(refusal("ids: {sandbox_slots: 60000}\n").find("the largest that container engines") !=
        std::string::npos);
  CHECK(refusal("ids: {sandbox_first_id: 2147483648}\n").find("is not from 65536 to 2147418112") !=
        std::string::npos);
  CHECK(refusal("ids: {sandbox_first_id: 2147418112, sandbox_slots: 2}\n")
            .find("the largest that container engines") != std::string::npos);
  CHECK(load_text("ids: {sandbox_first_id: 2147418112, sandbox_slots: 1}\n")
            .settings.ids.sandbox_slots == 1);
  CHECK(load_text("ids: {disk_first_id: 4294836224}\n").settings.ids.disk_first_id == 4294836224);
  CHECK(refusal("sandbox: {backend: process}\n").find("sandbox.allow_process_backend") !=
        std::string::npos);
  CHECK(load_text("sandbox: {backend: process, allow_process_backend: true}\n")
            .settings.sandbox.backend == "process");
}

TEST_CASE("a named file must exist") {
  try {
    load({.file = "/nonexistent/moorage.yaml"});
    FAIL("accepted");
  } catch (const base::Error& error) {
    CHECK(error.code() == base::Code::not_found);
    CHECK(error.message().find("/nonexistent/moorage.yaml") != std::string::npos);
  }
}

TEST_CASE("shown settings can be read again with the same result") {
  std::string text;
  std::string group;
  std::vector<ShownSetting> all =
      load_text("sandbox: {cpus: 1.25, memory_bytes: 100000001}\n").shown;
  std::stable_sort(all.begin(), all.end(), [](const ShownSetting& a, const ShownSetting& b) {
    const auto key = [](const std::string& name) {
      return name.find('.') == std::string::npos ? std::string() : name.substr(0, name.find('.'));
    };
    return key(a.name) < key(b.name);
  });
  for (const ShownSetting& setting : all) {
    const size_t dot = setting.name.find('.');
    const std::string own = dot == std::string::npos ? "" : setting.name.substr(0, dot);
    if (own != group) text += own + ":\n";
    group = own;
    text += (own.empty() ? "" : "  ") + setting.name.substr(dot + 1) + ": " + setting.value + "\n";
  }
  CAPTURE(text);
  std::map<std::string, std::string> values;
  for (const ShownSetting& setting : load_text(text).shown) values[setting.name] = setting.value;
  for (const ShownSetting& setting : all) CHECK(values[setting.name] == setting.value);
}

TEST_CASE("the example file has every setting at its default") {
  const Loaded example = load({.file = MOORAGE_EXAMPLE});
  for (const Setting& setting : settings_table()) {
    CAPTURE(setting.name);
    CHECK(setting.print(example.settings) == (setting.name == "libexec_directory"
                                                  ? example.settings.libexec_directory
                                                  : setting.print(Settings{})));
    CHECK((shown(example, std::string(setting.name)).source == "default") ==
          (setting.name == "libexec_directory"));
  }
}

TEST_CASE(
    "the table names every setting once, with a variable, a help text and its unit in the name") {
  std::set<std::string> variables;
  for (const Setting& setting : settings_table()) {
    CAPTURE(setting.name);
    CHECK(variables.insert(variable_of(setting)).second);
    CHECK(setting.help.size() > 8);
    CHECK((setting.unit == "bytes") == setting.name.ends_with("_bytes"));
    CHECK((setting.unit == "s") == setting.name.ends_with("_s"));
  }
  CHECK(settings_table().size() == 86);
  CHECK(variable_of(*find_setting("exec.output_limit_bytes")) == "MOORAGE_EXEC_OUTPUT_LIMIT_BYTES");
  CHECK_FALSE(find_setting("exec"));
}

TEST_CASE("the shown table has a line per setting with name, value and source") {
  const Loaded loaded = load_text("log: {level: debug}\n");
  const std::string text = show_text(loaded.shown);
  CHECK(std::count(text.begin(), text.end(), '\n') == static_cast<long>(loaded.shown.size()));
  const size_t at = text.find("log.level ");
  REQUIRE(at != std::string::npos);
  const std::string line = text.substr(at, text.find('\n', at) - at);
  CHECK(line.find(" debug ") != std::string::npos);
  CHECK(line.ends_with("moorage.yaml:1"));
}
