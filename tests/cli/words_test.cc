// Words and options that people bring from other programs do what they expect.
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <mutex>

#include "base/os/files.h"
#include "cli/aliases.h"
#include "cli/client/json.h"
#include "cli/commands.h"
#include "program.h"
#include "scripted_server.h"

using namespace moorage;
using cli::Json;
using test::Call;
using test::Ran;
using test::run_moorage;
using test::ScriptedServer;

namespace {

using Words = std::vector<std::string>;

std::string workspaces() {
  const std::string mine = R"("state":"ready","owner":)" + std::to_string(::getuid());
  return R"({"store":{},"workspaces":[{"id":"ws_1","name":"auth","labels":{"task":"7","team":"a"},)" +
         mine + R"(,"sandbox":{"state":"running"},"holder":{"holder":"agent-7","uid":)" +
         std::to_string(::getuid()) + R"(,"generation":5,"seen_ms_ago":2000}},
      {"id":"ws_2","name":"spike","labels":{"task":"8"},)" +
         mine + R"(},{"id":"ws_3","name":"busy",)" + mine + R"(,"sandbox":{"state":"running"}},
      {"id":"ws_4","name":"theirs","state":"ready","owner":4000000,"sandbox":{"state":"running"}}]})";
}

// A daemon with four workspaces; remembers the requests and their bodies.
struct Scene {
  std::mutex mutex;
  Words lines;
  ScriptedServer server{[this](Call& call) {
    const std::string body = call.body();
    {
      const std::lock_guard lock(mutex);
      lines.push_back(call.method + " " + call.target + (body.empty() ? "" : " " + body));
    }
    std::string answer = "{}";
    if (call.path == "/v1/workspaces") answer = workspaces();
    if (call.path == "/v1/config")
      answer = R"([{"name":"sandbox.image","value":"host","source":"default"},
                   {"name":"api.socket","value":"/s","source":"default"},
                   {"name":"units.size","value":"16MiB","unit":"bytes","source":"default"},
                   {"name":"units.none","value":"0","unit":"bytes","source":"default"},
                   {"name":"policy[1]","value":"{max: {cpus: 1}}","source":"f:2"}])";
    if (call.path == "/v1/workspaces/auth/execs" && call.method == "GET")
      answer = R"([{"id":"ex_1","state":"exited","workspace":"ws_1"}])";
    if (call.path == "/v1/workspaces/auth/file" && call.method == "GET")
      return call.reply(200, "one\ntwo\n", "Content-Type: application/octet-stream\r\n");
    if (call.path == "/v1/workspaces/auth/files")
      return call.reply(400, R"({"code":"invalid_argument","message":"not a directory"})",
                        test::json_header());
    if (call.path == "/v1/workspaces/busy/stop")
      return call.reply(409, R"({"code":"conflict","message":"busy is busy","hint":"--wait"})",
                        test::json_header());
    call.reply(200, answer, test::json_header());
  }};

  Ran run(const Words& words, const std::string& input = {}) {
    return run_moorage(words, {server.socket_path(), input, {}});
  }
  bool saw(const std::string& line) {
    server.settle();
    const std::lock_guard lock(mutex);
    return std::find(lines.begin(), lines.end(), line) != lines.end();
  }
  bool saw_begin(const std::string& begin) {
    server.settle();
    const std::lock_guard lock(mutex);
    return std::any_of(lines.begin(), lines.end(),
                       [&](const std::string& line) { return line.starts_with(begin); });
  }
  std::string body_of(const std::string& begin) {
    server.settle();
    const std::lock_guard lock(mutex);
    for (const std::string& line : lines) {
      if (line.starts_with(begin + " ")) return line.substr(begin.size() + 1);
    }
    return {};
  }
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("each alias is the name of no command and means one that exists") {
  for (const cli::Alias& alias : cli::all_aliases()) {
    CAPTURE(alias.typed);
    const auto named = [](std::string_view name) {
      const auto commands = cli::all_commands();
      return std::any_of(commands.begin(), commands.end(),
                         [&](const cli::Command& command) { return command.name == name; });
    };
    CHECK_FALSE(named(alias.typed));
    CHECK(named(alias.name));
    CHECK(std::count(alias.typed.begin(), alias.typed.end(), ' ') ==
          std::count(alias.name.begin(), alias.name.end(), ' '));
  }
}

TEST_CASE("an alias does what its command does") {
  Scene scene;
  CHECK(scene.run({"list"}).out == scene.run({"ls"}).out);
  CHECK(scene.run({"status"}).out == scene.run({"ls"}).out);
  CHECK(scene.run({"--json", "inspect", "auth"}).code == 0);
  CHECK(scene.saw("GET /v1/workspaces/auth"));
  CHECK(scene.run({"delete", "auth"}).code == 0);
  CHECK(scene.saw("DELETE /v1/workspaces/auth"));
  CHECK(contains(scene.run({"config", "get", "sandbox"}).out, "sandbox.image  host"));
  const std::string units = scene.run({"config", "show", "units"}).out;
  CHECK(contains(units, "units.size  16MiB    default"));
  CHECK(contains(units, "units.none  0 bytes  default"));
  CHECK(contains(scene.run({"config", "get", "policy"}).out, "policy[1]  {max: {cpus: 1}}"));
  CHECK(scene.run({"lease", "list"}).out == scene.run({"lease", "ls"}).out);
}

TEST_CASE("help and completion know the aliases") {
  Scene scene;
  const std::string help = scene.run({"rm", "--help"}).out;
  CHECK(contains(help, "Also: moorage delete, moorage remove\n"));
  CHECK(scene.run({"delete", "--help"}).out == help);
  CHECK(scene.run({"help", "delete"}).out == help);
  CHECK(scene.run({"help", "config", "get"}).out == scene.run({"config", "show", "--help"}).out);
  CHECK(scene.run({"completion", "words", "--", "del"}).out == "delete\tmoorage rm\n");
  CHECK(scene.run({"completion", "words", "--", "config", "g"}).out ==
        "get\tmoorage config show\n");
  CHECK(scene.run({"completion", "words", "--", "delete", "a"}).out == "auth\n");
  const Json table = Json::parse(scene.run({"completion", "commands"}).out);
  for (const Json& command : table.items("commands")) {
    if (command.text("name") == "rm") CHECK(command.texts("aliases") == Words{"delete", "remove"});
  }
}

TEST_CASE("a command that does not exist yet says how to do it today") {
  Scene scene;
  const std::string err = scene.run({"push", "auth"}).err;
  CHECK(contains(err,
                 "there is no command 'push'\n  hint: push from inside: "
                 "moorage exec auth -- git push; "));
  CHECK(contains(err, "moorage diff auth | git apply\n"));
  CHECK(contains(scene.run({"pull"}).err, "moorage diff NAME | git apply"));
  CHECK(scene.server.seen().empty());
}

TEST_CASE("a copy of a workspace is a fork") {
  Scene scene;
  CHECK(contains(scene.run({"clone", "auth", "b"}).err, "a workspace: moorage fork auth NEW;"));
  CHECK(contains(scene.run({"clone", "https://x/y"}).err, "moorage create URL"));
  CHECK(contains(scene.run({"copy", "auth", "b"}).err, "moorage fork auth NEW; of files:"));
  CHECK(contains(scene.run({"cp", "auth", "b"}).err, "moorage fork auth b\n"));
  CHECK(contains(scene.run({"cp", "auth:a", "busy:b"}).err, "put ./ before"));
  CHECK(scene.server.seen().empty());
}

TEST_CASE("short words and swapped letters find their command") {
  Scene scene;
  CHECK(scene.run({"ws"}).out == scene.run({"ls"}).out);
  CHECK(scene.run({"-v"}).out == scene.run({"--version"}).out);
  CHECK(contains(scene.run({"snap", "auth", "green"}).out, "moorage restore auth"));
  CHECK(scene.saw(R"(POST /v1/workspaces/auth/snapshots {"name":"green"})"));
  CHECK(scene.run({"log", "--help"}).out == scene.run({"logs", "--help"}).out);
  CHECK(contains(scene.run({"stauts", "auth"}).err, "did you mean: moorage status\n"));
  CHECK(contains(scene.run({"exce", "auth"}).err, "did you mean: moorage exec\n"));
}

TEST_CASE("a snapshot of no workspace names the command that was meant") {
  ScriptedServer server([](Call& call) {
    call.reply(404, R"({"code":"not_found","message":"no workspace","hint":"moorage ls"})",
               test::json_header());
  });
  const auto err = [&](const Words& words) {
    return run_moorage(words, {server.socket_path(), {}, {}}).err;
  };
  CHECK(contains(err({"snapshot", "ls", "auth"}),
                 "hint: list the snapshots of a workspace: "
                 "moorage snapshots auth\n"));
  CHECK(contains(err({"snapshot", "list"}), "moorage snapshots NAME\n"));
  CHECK(contains(err({"snap", "rm", "auth", "green"}), "moorage drop auth SNAPSHOT\n"));
  CHECK(contains(err({"snapshot", "auth"}), "hint: moorage ls\n"));
}

TEST_CASE("options of other programs mean those of moorage and are in no help") {
  Scene scene;
  for (const char* option : {"--workdir", "-w"}) {
    scene.run({"exec", "-d", option, "src", "auth", "ls", "-l"});
    CHECK(contains(scene.body_of("POST /v1/workspaces/auth/execs"), R"("cwd":"/workspace/src")"));
  }
  scene.run({"exec", "-d", "--workdir=/tmp", "spike", "ls"});
  const std::string body = scene.body_of("POST /v1/workspaces/spike/execs");
  CHECK(contains(body, R"("argv":["ls"])"));
  CHECK(contains(body, R"("cwd":"/tmp")"));
  CHECK(contains(scene.run({"exec", "auth", "-w", ""}).err, "--workdir needs a value"));
  CHECK(scene.run({"ls", "-l"}).out == scene.run({"ls"}).out);
  CHECK(scene.run({"ls", "-la"}).code == 0);
  CHECK(scene.saw("GET /v1/workspaces?deleted=1"));
  scene.run({"move", "auth", "--backend", "docker", "--dry-run"});
  CHECK(scene.saw_begin("POST /v1/workspaces/auth/move/check"));
  for (const char* command : {"exec", "run", "apply", "move", "gc", "ls"}) {
    const std::string help = scene.run({command, "--help"}).out;
    CHECK_FALSE(contains(help, "--workdir"));
    CHECK_FALSE(contains(help, "--dry-run"));
  }
}

TEST_CASE("shell runs one command with -c and names exec for another form") {
  Scene scene;
  scene.run({"shell", "auth", "-c", "cd src && ls"});
  const std::string body = scene.body_of("POST /v1/workspaces/auth/execs");
  CHECK(contains(body, R"("argv":["bash","-l","-c","cd src && ls"])"));
  CHECK_FALSE(contains(body, "tty"));
  CHECK(
      contains(scene.run({"shell", "auth", "--", "ls", "-l"}).err, "moorage exec auth -- ls -l\n"));
}

TEST_CASE("a lease takes a time, and a share says with whom") {
  Scene scene;
  scene.run({"--json", "lease", "acquire", "auth", "--ttl", "10m", "--holder", "x"});
  CHECK(contains(scene.body_of("POST /v1/workspaces/auth/lease"), R"("ttl_s":600)"));
  scene.run({"--json", "lease", "acquire", "busy", "--ttl", "90", "--holder", "x"});
  CHECK(contains(scene.body_of("POST /v1/workspaces/busy/lease"), R"("ttl_s":90)"));
  for (const char* time : {"2h", "1", "4s"}) {
    CHECK(contains(scene.run({"--json", "lease", "acquire", "auth", "--ttl", time}).err,
                   std::string("--ttl must be from 5s to 1h, not '") + time + "'"));
  }
  for (const Words& words : {Words{"share", "auth", "--user", "bob"},
                             Words{"share", "auth", "--group", "devs", "--read-only"}}) {
    const Ran ran = scene.run(words);
    CHECK(ran.code == 1);
    CHECK(contains(ran.err, "shared with a group of this host, for reading and writing\n"));
    CHECK(contains(ran.err, "moorage share NAME --group GROUP"));
  }
  CHECK(scene.server.count("POST /v1/workspaces/auth/share") == 0);
}

TEST_CASE("a command with options needs no -- before it") {
  Scene scene;
  scene.run({"exec", "-d", "auth", "ls", "-la"});
  CHECK(contains(scene.body_of("POST /v1/workspaces/auth/execs"), R"("argv":["ls","-la"])"));
  scene.run({"exec", "--timeout", "5m", "spike", "-d", "make", "-j2"});
  const std::string body = scene.body_of("POST /v1/workspaces/spike/execs");
  CHECK(contains(body, R"("argv":["make","-j2"])"));
  CHECK(contains(body, R"("timeout_ms":300000)"));
}

TEST_CASE("an option after the command that moorage has, too, is refused with both ways") {
  Scene scene;
  const auto refuses = [&](const Words& words, const std::string& message) {
    const Ran ran = scene.run(words);
    CHECK(ran.code == 125);
    CHECK(contains(ran.err, message));
  };
  refuses(
      {"exec", "auth", "head", "-n", "5"},
      "-n stands after the command, and moorage exec has that option, too\n"
      "  hint: for the command: moorage exec auth -- head -n 5; otherwise put it before head\n");
  refuses({"exec", "auth", "df", "-h"}, "moorage exec auth -- df -h");
  refuses({"run", "--repo", "u", "make", "--json"}, "moorage run --repo u -- make --json");
  refuses({"lease", "run", "auth", "tool", "--ttl=5"}, "moorage lease run auth -- tool --ttl=5");
  CHECK(scene.server.seen().empty());
}

TEST_CASE("ls takes --all and --label") {
  Scene scene;
  const std::string labelled = scene.run({"ls", "--label", "task=8"}).out;
  CHECK(contains(labelled, "spike"));
  CHECK_FALSE(contains(labelled, "auth"));
  CHECK(contains(labelled, "\n1 workspace"));
  CHECK(contains(scene.run({"ls", "--label", "task"}).out, "\n2 workspaces"));
  CHECK(contains(scene.run({"ls", "--label", "task=7", "--label", "team=b"}).out,
                 "no workspaces with that label"));
  const Json json = Json::parse(scene.run({"--json", "ls", "--label", "team=a"}).out);
  REQUIRE(json.items("workspaces").size() == 1);
  CHECK(json.items("workspaces")[0].text("name") == "auth");
  CHECK(contains(scene.run({"ls", "--label", "=x"}).err, "--label: '=x' is not K=V"));
  scene.run({"ls", "--all"});
  CHECK(scene.saw("GET /v1/workspaces?deleted=1"));
}

TEST_CASE("lease ls lists the held workspaces") {
  Scene scene;
  CHECK(scene.run({"lease", "ls"}).out ==
        "NAME  OWNER  LEASE  HOLDER   SEEN\n"
        "auth  you    5      agent-7  2s ago\n");
}

TEST_CASE("create takes a URL or a directory") {
  Scene scene;
  scene.run({"create", "https://x/shop", "--name", "shop"});
  CHECK(contains(scene.body_of("POST /v1/workspaces"), R"("repo_url":"https://x/shop")"));
  CHECK(contains(scene.run({"create", "https://x/shop", "--repo", "u"}).err,
                 "SOURCE excludes --repo and --from"));
  const std::string directory = scene.server.directory() + "/checkout";
  base::make_directories(directory);
  scene.run({"create", directory});
  CHECK(scene.saw_begin("GET /v1/repos/import?label="));
}

TEST_CASE("attach takes the workspace, too") {
  Scene scene;
  CHECK(contains(scene.run({"attach", "auth"}).err,
                 "no command runs in auth\n  hint: past output: moorage logs auth"));
  CHECK(contains(scene.run({"attach", "auth", "nonsense"}).err, "nonsense"));
}

TEST_CASE("cat takes the file as a word of its own") {
  Scene scene;
  CHECK(scene.run({"cat", "auth", "a.txt"}).out == "one\ntwo\n");
  CHECK(scene.saw("GET /v1/workspaces/auth/file?path=a.txt"));
  CHECK(contains(scene.run({"cat", "auth:a", "b"}).err, "moorage cat prints one file"));
}

TEST_CASE("cp reads standard input and writes standard output") {
  Scene scene;
  CHECK(scene.run({"cp", "auth:a.txt", "-"}).out == "one\ntwo\n");
  const Ran ran = scene.run({"cp", "-", "auth:b.txt"}, "from a pipe");
  CHECK(ran.err.empty());
  CHECK(contains(ran.out, "1 file, 11"));
  CHECK(scene.saw("PUT /v1/workspaces/auth/file?path=b.txt from a pipe"));
  CHECK(contains(scene.run({"cp", "-", "auth:"}).err, "standard input has no name"));
  CHECK(contains(scene.run({"cp", "auth:", "-"}).err, "only one file"));
}

TEST_CASE("snapshot and fork take --name") {
  Scene scene;
  scene.run({"snapshot", "auth", "--name", "green"});
  CHECK(scene.saw(R"(POST /v1/workspaces/auth/snapshots {"name":"green"})"));
  CHECK(contains(scene.run({"snapshot", "auth", "a", "--name", "b"}).err, "use one of them"));
  scene.run({"fork", "auth", "a", "--name", "b", "--name", "c"});
  CHECK(scene.saw(R"(POST /v1/workspaces/auth/fork {"names":["a","b","c"]})"));
}

TEST_CASE("stop --all stops what the caller runs and goes on after a refusal") {
  Scene scene;
  const Ran ran = scene.run({"stop", "--all"});
  CHECK(ran.code == 1);
  CHECK(scene.saw("POST /v1/workspaces/auth/stop"));
  CHECK(scene.saw("POST /v1/workspaces/busy/stop"));
  CHECK_FALSE(scene.saw("POST /v1/workspaces/spike/stop"));
  CHECK_FALSE(scene.saw("POST /v1/workspaces/theirs/stop"));
  CHECK(contains(ran.err, "busy is busy; --wait"));
  CHECK(contains(ran.err, "of other users, 1 sandbox still runs; moorage ls lists them"));
  CHECK(contains(scene.run({"stop"}).err, "NAME is required\n  hint: moorage stop --help"));
  CHECK(contains(scene.run({"stop", "--all", "auth"}).err, "--all takes no names"));
}
