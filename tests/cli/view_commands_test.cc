#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <mutex>
#include <sstream>

#include "base/clock.h"
#include "base/wire/output_stream.h"
#include "cli/client/json.h"
#include "cli/commands.h"
#include "program.h"
#include "scripted_server.h"

using namespace moorage;
using cli::Json;
using cli::JsonObject;
using test::Call;
using test::Ran;
using test::run_moorage;
using test::RunOptions;
using test::ScriptedServer;

namespace {

// In whole minutes, because a busy machine may need a second to start the program.
std::string ago(int64_t seconds) {
  return base::format_utc(base::system_clock().wall_ms() - seconds * 1000 - 200);
}

std::string workspace_json() {
  return R"({"id":"ws_1","name":"auth","owner":)" + std::to_string(::getuid()) +
         R"(,"repo":{"id":"repo_1","name":"acme/shop","url":"https://github.com/acme/shop"},
         "base":{"ref":"refs/heads/main","commit":"4f1c2e9aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","behind":23,"checked_at":")" +
         ago(120) +
         R"("},"branch":"agent/auth","unpushed":3,"state":"ready","labels":{"task":"AUTH-12"},
         "doing":{"exec":"ex_3","argv":["/usr/bin/my-agent","split it"],"since_at":")" +
         ago(134 * 60) + R"(","last_output_at":")" + ago(41 * 60) +
         R"("},"changes":{"files":37,"as_of":")" + ago(5 * 60) +
         R"("},"disk_bytes":432013312,"backend":"lxc","image":"host","integrity":{"state":"intact"},
         "limits":{"memory_bytes":4294967296,"cpus":2,"pids":512},
         "sandbox":{"id":"sb_4","state":"running","isolation":"userns","memory_bytes":2040109466,"processes":12},
         "holder":1004,"submodules":0,"lfs":2,"created_at":")" +
         ago(86400 * 3) + R"("})";
}

std::string workspaces_json() {
  return R"({"workspaces":[)" + workspace_json() + R"(,
    {"id":"ws_2","name":"spike","repo":{"name":"acme/api"},"base":{"ref":"v2.1"},"state":"ready","changes":{"files":0},"disk_bytes":0},
    {"id":"ws_3","name":"lost-1","repo":{"name":"acme/api"},"base":{"ref":"main"},"state":"ready","integrity":{"state":"changed-outside",
     "reason":"2 files differ\u001b[31m"}}],
    "store":{"total_bytes":214748364800,"used_bytes":33285996544,"free_bytes":181462368256}})";
}

std::string blocked_json() {
  std::string json = workspace_json();
  return json.insert(1, R"("blocked":{"host":"api.example.com","exec":"ex_3"},)");
}

ScriptedServer::Handler answers(const std::string& path, const std::string& body) {
  return [=](Call& call) {
    call.body();
    if (call.path == path) return call.reply(200, body, test::json_header());
    call.reply(
        404, R"({"code":"not_found","message":"there is no \u001b[2J here","hint":"look\u202e"})");
  };
}

}  // namespace

TEST_CASE("ls prints a line for each workspace and the free space") {
  ScriptedServer server(answers("/v1/workspaces", workspaces_json()));
  const Ran ran = run_moorage({"ls"}, {server.socket_path(), "", {}});
  CHECK(ran.err == "");
  CHECK(
      ran.out ==
      "NAME    OWNER  REPO       BASE      STATE    DOING           CHANGES   DISK  HOLDER\n"
      "auth    you    acme/shop  main -23  running  my-agent 2h14m  37 files  412M  uid 1004\n"
      "spike   -      acme/api   v2.1      stopped  -               none         0  -\n"
      "lost-1  -      acme/api   main      CHECK    2 files differ\\x1b[31m: moorage show lost-1\n"
      "3 workspaces | 31G of 200G, 169G free\n");
}

TEST_CASE("ls and show name the host that a command is blocked by") {
  const std::string blocked = "blocked: api.example.com (ex_3)";
  ScriptedServer list(answers("/v1/workspaces", R"({"workspaces":[)" + blocked_json() + "]}"));
  CHECK(run_moorage({"ls"}, {list.socket_path(), "", {}}).out.find(blocked) != std::string::npos);
  ScriptedServer one(answers("/v1/workspaces/auth", blocked_json()));
  const Ran ran = run_moorage({"show", "auth"}, {one.socket_path(), "", {}});
  CHECK(ran.out.find("\n blocked   api.example.com (ex_3); allow it: moorage net allow auth "
                     "api.example.com\n") != std::string::npos);
}

TEST_CASE("ls and show say why a sandbox stopped") {
  const std::string stopped =
      R"({"id":"ws_1","name":"auth","state":"ready","backend":"lxc","owner":)" +
      std::to_string(::getuid()) + R"(,"stopped":{"since_at":")" + ago(5 * 60) +
      R"(","reason":"idle for 30m"}})";
  ScriptedServer list(answers("/v1/workspaces", R"({"workspaces":[)" + stopped + "]}"));
  CHECK(run_moorage({"ls"}, {list.socket_path(), "", {}}).out.find(" stopped  idle for 30m ") !=
        std::string::npos);
  ScriptedServer one(answers("/v1/workspaces/auth", stopped));
  CHECK(run_moorage({"show", "auth"}, {one.socket_path(), "", {}})
            .out.find("\n sandbox   none, lxc; stopped 5 min ago: idle for 30m\n") !=
        std::string::npos);
}

TEST_CASE("one end has the same words in ps, history and wait") {
  const auto words = [](const std::string& exec, const std::string& wanted) {
    CAPTURE(exec);
    const std::string row = R"({"id":"ex_1","workspace":"ws_1","argv":["true"],)" + exec + "}";
    ScriptedServer server([&](Call& call) {
      call.body();
      std::string body = row;
      if (call.path == "/v1/execs") body = "[" + row + "]";
      if (call.path == "/v1/workspaces/a/history") body = R"({"execs":[)" + row + "]}";
      call.reply(200, body, test::json_header());
    });
    const RunOptions options{server.socket_path(), "", {}};
    CHECK(run_moorage({"ps", "--all"}, options).out.find("  " + wanted + "  ") !=
          std::string::npos);
    CHECK(run_moorage({"history", "a"}, options).out.find("  " + wanted + "  ") !=
          std::string::npos);
    CHECK(run_moorage({"wait", "ex_1"}, options).out.find(" " + wanted + "\n") !=
          std::string::npos);
  };
  words(R"("state":"exited","exit_code":0)", "exited 0");
  words(R"("state":"exited","exit_code":127,"category":"not_found")", "exited 127 (not found)");
  words(R"("state":"signalled","signal":9,"category":"signal")", "signal 9");
  words(R"("state":"timed_out","category":"timeout")", "timed out");
  words(R"("state":"oom_killed","category":"out_of_memory")", "out of memory");
  words(R"("state":"cancelled","category":"cancelled","error":"cancelled by alice")",
        "cancelled by alice");
  words(R"x("state":"cancelled","category":"cancelled","error":"lifetime of 1s (max_lifetime_s)")x",
        "cancelled (lifetime of 1s)");
  words(
      R"("state":"interrupted","category":"stopped","error":"ended with its sandbox: idle for 30m")",
      "interrupted (idle for 30m)");
}

TEST_CASE("ls and ps fetch all pages and print one table") {
  const std::string you = std::to_string(::getuid());
  ScriptedServer server([&](Call& call) {
    const auto row = [&](int number) {
      const std::string n = std::to_string(number);
      return R"({"id":"ws_)" + n + R"(","name":"w)" + n + R"(","state":"ready","owner":)" + you +
             "}";
    };
    call.body();
    std::string page;
    if (call.target == "/v1/workspaces") page = row(1) + "," + row(2) + R"(],"next":"ws_2")";
    if (call.target == "/v1/workspaces?after=ws_2") page = row(5) + R"(],"next":"ws_5")";
    if (call.target == "/v1/workspaces?after=ws_5") page = row(7) + "]";
    const std::string body = call.target.starts_with("/v1/execs")
                                 ? R"([{"id":"ex_1","workspace":"ws_7","state":"running"}])"
                                 : R"({"store":{"total_bytes":0},"workspaces":[)" + page + "}";
    call.reply(200, body, test::json_header());
  });
  const RunOptions options{server.socket_path(), "", {}};
  const Ran ran = run_moorage({"ls"}, options);
  CHECK(ran.err == "");
  CHECK(std::count(ran.out.begin(), ran.out.end(), '\n') == 6);
  CHECK(ran.out.find("\nw7 ") != std::string::npos);
  CHECK(ran.out.ends_with("4 workspaces\n"));
  const Json json = Json::parse(run_moorage({"--json", "ls"}, options).out);
  CHECK(json.items("workspaces").size() == 4);
  CHECK_FALSE(json.has("next"));
  CHECK(json.is_object("store"));
  CHECK(run_moorage({"ps"}, options).out.find(" w7 ") != std::string::npos);
}

TEST_CASE("ls names owners, and shows an id only where a name alone would not do") {
  const auto row = [](const std::string& id, const std::string& name, int64_t owner) {
    return R"({"id":")" + id + R"(","name":")" + name + R"(","state":"ready","owner":)" +
           std::to_string(owner) + R"(,"owner_name":")" + (owner == 4000000 ? "alice" : "bob") +
           R"(","disk_bytes":0})";
  };
  ScriptedServer server(answers("/v1/workspaces", R"({"workspaces":[)" +
                                                      row("ws_7", "tour", 4000000) + "," +
                                                      row("ws_8", "shop", 4000000) + "," +
                                                      row("ws_9", "shop", 4000001) + "]}"));
  CHECK(run_moorage({"ls"}, {server.socket_path(), "", {}}).out ==
        "NAME         OWNER  REPO  BASE  STATE    DOING  CHANGES  DISK  HOLDER\n"
        "tour         alice  -     -     stopped  -      -           0  -\n"
        "ws_8 (shop)  alice  -     -     stopped  -      -           0  -\n"
        "ws_9 (shop)  bob    -     -     stopped  -      -           0  -\n"
        "3 workspaces\n");
}

TEST_CASE("ls --deleted shows ids and leaves out live workspaces") {
  const auto deleted = [](const std::string& id, int64_t seconds) {
    return R"({"id":")" + id +
           R"(","name":"a","state":"deleted","repo":{"name":"acme/api"},"base":{"ref":"main"},)" +
           R"("owner":4000000,"deleted_at":")" + ago(seconds) + R"("})";
  };
  ScriptedServer server(
      answers("/v1/workspaces", R"({"workspaces":[{"id":"ws_1","state":"ready"},)" +
                                    deleted("ws_2", 7200) + "," + deleted("ws_3", 120) + "]}"));
  const RunOptions options{server.socket_path(), "", {}};
  CHECK(run_moorage({"ls", "--deleted"}, options).out ==
        "ID    NAME  REPO      BASE  DELETED  CHANGES  OWNER\n"
        "ws_2  a     acme/api  main  2h ago   -        uid 4000000\n"
        "ws_3  a     acme/api  main  2m ago   -        uid 4000000\n"
        "restore one: moorage undelete ID\n");
  const Json json = Json::parse(run_moorage({"--json", "ls", "--deleted"}, options).out);
  REQUIRE(json.items("workspaces").size() == 2);
  CHECK(json.items("workspaces")[1].text("id") == "ws_3");
}

TEST_CASE("repo fetch fails when upstream does not answer") {
  ScriptedServer server([](Call& call) {
    call.body();
    call.reply(200,
               R"({"id":"repo_1","name":"acme/api","default_branch":"main","tip":"4f1c2e9aaaa",)"
               R"("stale":true,"stale_reason":"ask upstream: refused"})");
  });
  const RunOptions options{server.socket_path(), "", {}};
  const Ran ran = run_moorage({"repo", "fetch", "repo_1"}, options);
  CHECK(ran.code == 1);
  CHECK(ran.out == "");
  CHECK(ran.err.find("acme/api was not fetched: ask upstream: refused\n") != std::string::npos);
  // A stale cache is enough for add.
  const Ran added = run_moorage({"repo", "add", "https://h/acme/api"}, options);
  CHECK(added.code == 0);
  CHECK(added.out.find("stale: ask upstream: refused") != std::string::npos);
}

TEST_CASE("show prints the details of a workspace") {
  ScriptedServer server(answers("/v1/workspaces/auth", workspace_json()));
  const Ran ran = run_moorage({"show", "auth"}, {server.socket_path(), "", {}});
  CHECK(ran.err == "");
  CHECK(ran.out ==
        "auth  ws_1  owner you  task=AUTH-12\n"
        " base      acme/shop main 4f1c2e9, 23 behind (checked 2 min ago)\n"
        " branch    agent/auth, 3 commits not pushed\n"
        " changes   37 files (as of 5 min ago)\n"
        " lfs       2 LFS pointers, contents not fetched\n"
        " sandbox   sb_4 running, lxc, userns, image host\n"
        " limits    memory 1.9G used of 4G, cpu 2, processes 12 of 512\n"
        " doing     ex_3 /usr/bin/my-agent 'split it' 2h14m, last output 41 min ago\n"
        " holder    uid 1004\n"
        " safe      files intact\n"
        " disk      412M\n"
        " made      3 days ago\n"
        " stops     moorage stop auth; no timer deletes the workspace\n"
        " next      moorage attach ex_3 | diff auth | shell auth | logs auth\n");
}

TEST_CASE("--json prints the API's JSON, before or after the command") {
  const std::string json = workspaces_json();
  ScriptedServer server(answers("/v1/workspaces", json));
  const RunOptions options{server.socket_path(), "", {}};
  CHECK(run_moorage({"ls", "--json"}, options).out == json + "\n");
  CHECK(run_moorage({"--json", "ls"}, options).out == json + "\n");
}

TEST_CASE("an error is a message and a hint, harmless on a terminal") {
  ScriptedServer server(answers("/none", ""));
  const Ran ran = run_moorage({"show", "x"}, {server.socket_path(), "", {}});
  CHECK(ran.code == 1);
  CHECK(ran.out == "");
  CHECK(ran.err == "moorage: there is no \\x1b[2J here\n  hint: look\\u{202e}\n");
}

TEST_CASE("the socket comes from the option before the environment") {
  const Ran ran = run_moorage({"--socket", "/nonexistent/a", "ls"}, {"/nonexistent/b", "", {}});
  CHECK(ran.code == 1);
  CHECK(ran.err.starts_with(
      "moorage: cannot reach the daemon at /nonexistent/a: the socket does not exist\n"
      "  hint: start it with: sudo "));
}

TEST_CASE("--version is the command version, and neither needs a daemon") {
  const Ran ran = run_moorage({"--version"}, {"/nonexistent/sock", "", {}});
  CHECK(ran.code == 0);
  CHECK(ran.out == run_moorage({"version"}, {"/nonexistent/sock", "", {}}).out);
  CHECK(ran.out.find(MOORAGE_VERSION) != std::string::npos);
}

TEST_CASE("every command has a help that ends in an example of itself") {
  for (const cli::Command& command : cli::all_commands()) {
    CAPTURE(std::string(command.name));
    std::vector<std::string> words;
    std::string name(command.name);
    const size_t space = name.find(' ');
    words.push_back(name.substr(0, space));
    if (space != std::string::npos) words.push_back(name.substr(space + 1));
    words.push_back("--help");
    const Ran ran = run_moorage(words, {"/nonexistent", "", {}});
    CHECK(ran.code == 0);
    CHECK(ran.out.find("Usage: moorage " + name) != std::string::npos);
    const size_t example = ran.out.find("\nExample:\n");
    REQUIRE(example != std::string::npos);
    CHECK(ran.out.find("moorage " + name, example) != std::string::npos);
    for (size_t at = 0, end; at < ran.out.size(); at = end + 1) {
      end = ran.out.find('\n', at);
      CHECK(end - at <= 80);
    }
  }
  CHECK(run_moorage({"frob"}, {"/nonexistent", "", {}}).code == 1);
}

TEST_CASE("the first page of the help fits a screen and has ten commands and every topic") {
  const auto shown = [](const std::vector<std::string>& words) {
    const Ran ran = run_moorage(words, {"/nonexistent", "", {}});
    CHECK(ran.code == 0);
    CHECK(ran.err.empty());
    return ran.out;
  };
  const std::string page = shown({"--help"});
  CHECK(page == shown({"help"}));
  CHECK(page == shown({}));
  CHECK(std::count(page.begin(), page.end(), '\n') < 24);
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 80);
  int everyday = 0;
  for (const cli::Command& command : cli::all_commands()) {
    CAPTURE(std::string(command.name));
    REQUIRE(cli::find_topic(command.topic) != nullptr);
    const std::string line = "\n " + std::string(command.name) + " ";
    const size_t found = shown({"help", std::string(command.topic)}).find(line);
    CHECK(found != std::string::npos);
    if (command.everyday > 0) CHECK(page.find(line) != std::string::npos);
    everyday += command.everyday > 0 ? 1 : 0;
  }
  CHECK(everyday == 10);
  for (const cli::Topic& topic : cli::all_topics())
    CHECK(page.find(" " + std::string(topic.name) + " ") != std::string::npos);
  CHECK(shown({"help", "exec"}) == shown({"exec", "--help"}));
  CHECK(shown({"help", "repo", "ls"}) == shown({"repo", "ls", "--help"}));
  CHECK(shown({"help", "repo"}) == shown({"repo", "--help"}));
}

TEST_CASE("owners have the names of the host's accounts") {
  ScriptedServer server(answers(
      "/v1/workspaces", R"({"workspaces":[{"id":"ws_1","name":"a","state":"ready","owner":1}]})"));
  CHECK(run_moorage({"ls"}, {server.socket_path(), "", {}}).out.find("\na     daemon ") !=
        std::string::npos);
}

TEST_CASE("history says how many commands there are, and how to see them") {
  std::string total = "7";
  std::string asked;
  ScriptedServer server([&](Call& call) {
    call.body();
    asked = call.query("limit") + " " + call.query("before");
    call.reply(
        200,
        R"({"execs":[{"id":"ex_6","state":"running"}],"truncated":true,"total":)" + total + "}",
        test::json_header());
  });
  const auto note = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"history", "a"});
    return run_moorage(words, {server.socket_path(), "", {}}).err;
  };
  CHECK(note({"-n", "1"}) == "moorage: showing the last 1 of 7; all: -n 7\n");
  CHECK(note({"--before", "ex_9"}) == "moorage: showing 1 of 7; older: --before ex_6\n");
  CHECK(asked == "100 ex_9");
  total = "1234";
  CHECK(note({"-n", "1"}) == "moorage: showing the last 1 of 1234; older: --before ex_6\n");
  CHECK(note({"--before", "first"}).find("--before takes a command's id") != std::string::npos);
}

TEST_CASE("ps of a workspace with more commands than it lists says how many there are") {
  std::string rows;
  for (int n = 2000; n > 1000; --n)
    rows += R"({"id":"ex_)" + std::to_string(n) + R"(","state":"exited"},)";
  ScriptedServer server([&](Call& call) {
    call.body();
    std::string body = R"({"workspaces":[]})";
    if (call.path == "/v1/workspaces/a/execs") body = "[" + rows.substr(0, rows.size() - 1) + "]";
    if (call.path == "/v1/workspaces/a/history") body = R"({"execs":[],"total":1234})";
    call.reply(200, body, test::json_header());
  });
  CHECK(run_moorage({"ps", "a"}, {server.socket_path(), "", {}}).err ==
        "moorage: showing the last 1000 of 1234; older: moorage history a -n 1000 --before "
        "ex_1001\n");
}

TEST_CASE("stop names the commands that it ended") {
  ScriptedServer server([](Call& call) {
    call.body();
    call.reply(200, R"({"name":"a","ended":["ex_8","ex_9"]})", test::json_header());
  });
  CHECK(run_moorage({"stop", "a"}, {server.socket_path(), "", {}}).out ==
        " stopped  a   files kept; ended 2 running commands: ex_8, ex_9\n");
}

TEST_CASE("create sends its options and reports the result") {
  std::string body;
  ScriptedServer server([&](Call& call) {
    body = call.body();
    call.begin(201, "Content-Type: application/x-ndjson\r\n");
    call.chunk(
        "{\"progress\":{\"phase\":\"fetch\",\"text\":\"acme/shop\"}}\n{\"result\":" +
        std::string(R"({"id":"ws_1","name":"auth","repo":{"name":"acme/shop"},"backend":"lxc",)") +
        R"("base":{"ref":"main","commit":"4f1c2e9aaaa"},"changes":{"files":0}}})" + "\n");
    call.end();
  });
  const RunOptions options{server.socket_path(), "", {}};
  const Ran ran = run_moorage({"create",     "--repo",    "https://h/acme/shop",
                               "--name",     "auth",      "--label",
                               "task=A=1",   "--label",   "user=me",
                               "--memory",   "4G",        "--cpus",
                               "1.5",        "--pids",    "100",
                               "--ref",      "main",      "--branch",
                               "agent/auth", "--backend", "ssh",
                               "--host",     "build1"},
                              options);
  CHECK(ran.err == "");
  CHECK(ran.out.find(" base     acme/shop main 4f1c2e9\n ready    auth   /workspace   lxc   ") ==
        0);
  server.settle();
  const Json json = Json::parse(body);
  CHECK(json.text("repo_url") == "https://h/acme/shop");
  CHECK(json.text("labels.task") == "A=1");
  CHECK(json.text("labels.user") == "me");
  CHECK(json.number("limits.memory_bytes") == 4ll << 30);
  CHECK(json.real("limits.cpus") == 1.5);
  CHECK(json.number("limits.pids") == 100);
  CHECK(json.text("backend") == "ssh");
  CHECK(json.text("runtime") == "build1");
  CHECK_FALSE(json.has("disposable"));
  CHECK(run_moorage({"create"}, options).code == 1);
  CHECK(run_moorage({"create", "--repo", "u", "--memory", "lots"}, options).err.find("--memory") !=
        std::string::npos);
}

TEST_CASE("events print a line each and continue after the last one seen") {
  std::atomic<int> calls{0};
  ScriptedServer server([&](Call& call) {
    call.begin(200, "Content-Type: application/x-ndjson\r\n");
    if (++calls == 1) {
      call.chunk(
          R"({"seq":8,"at":"2026-11-21T09:12:04.512Z","kind":"exec","exec":"ex_3","from":"running","to":"exited"})"
          "\n{\"seq\":9,\"at\"");
      return call.drop();
    }
    call.chunk(
        "{\"seq\":9,\"at\":\"2026-11-21T09:12:05Z\",\"kind\":\"note\",\"text\":\"a\\u001bb\"}\n");
    std::string since = call.query("since");
    call.chunk("{\"seq\":10,\"at\":\"x\",\"kind\":\"since " + since + "\"}\n");
    while (call.client_waits()) ::usleep(5000);
    call.drop();
  });
  test::Running running({"events", "-f"}, {server.socket_path(), "", {}});
  CHECK(running.read_until("since 8\n") ==
        "2026-11-21 09:12:04  exec  ex_3  running -> exited\n"
        "2026-11-21 09:12:05  note  a\\x1bb\n"
        "x  since 8\n");
}

TEST_CASE("diff is raw in a pipe and counted with --stat") {
  const std::string patch = "--- a/x\n+++ b/x\n+\x1b[31mred\xff\n";
  ScriptedServer server([&](Call& call) {
    if (call.query("stat") == "1") {
      return call.reply(
          200, R"([{"path":"src/a.ts","added":10,"removed":2,"binary":false,"change":"modified"},
                                 {"path":"b.png","added":0,"removed":0,"binary":true,"change":"added"}])");
    }
    if (!call.target.ends_with("/diff?base=work"))
      return call.reply(200, R"({"name":"auth","base":{"moved_to":"4f1c2e9a"}})");
    call.reply(200, patch);
  });
  const auto ran = run_moorage({"diff", "auth"}, {server.socket_path(), "", {}});
  CHECK(ran.out == patch);
  CHECK(ran.err.find("the changes count from 4f1c2e9, after a rebase or merge inside") !=
        std::string::npos);
  CHECK(run_moorage({"diff", "auth", "--stat"}, {server.socket_path(), "", {}}).out ==
        " src/a.ts | 12 ++++++++++--\n b.png    | binary added\n 2 files, +10 -2\n");
  test::Running on_terminal({"diff", "auth"}, {server.socket_path(), "", {{"NO_COLOR", "1"}}},
                            true);
  CHECK(on_terminal.read_until("red").find("+\\x1b[31mred") != std::string::npos);
}

TEST_CASE("stop, start, rm and undelete report the result") {
  std::mutex mutex;
  std::string body;
  ScriptedServer server([&](Call& call) {
    const std::lock_guard guard(mutex);
    body = call.body();
    const bool mine = call.path == "/v1/workspaces/a/stop";
    call.reply(200, R"({"owner":)" + std::to_string(mine ? ::getuid() : 4000000) + "}",
               test::json_header());
  });
  const RunOptions options{server.socket_path(), "", {}};
  CHECK(run_moorage({"stop", "a", "b"}, options).out ==
        " stopped  a   files kept; the next exec starts it; only you can delete it\n"
        " stopped  b   files kept; the next exec starts it\n");
  CHECK(run_moorage({"rm", "a"}, options).out ==
        " deleted  a   restore with: moorage undelete a\n");
  CHECK(run_moorage({"undelete", "a"}, options).out == " back     a\n");
  CHECK(run_moorage({"undelete", "ws_3", "--name", "b"}, options).out == " back     b\n");
  server.settle();
  {
    const std::lock_guard guard(mutex);
    CHECK(body == R"({"name":"b"})");
  }
  CHECK(run_moorage({"undelete", "ws_3", "ws_4", "--name", "b"}, options).code == 1);
  run_moorage({"rm", "--purge", "a"}, options);
  CHECK(server.seen().back().target == "/v1/workspaces/a?purge=1");
  CHECK(run_moorage({"kill", "ex_3", "sigterm"}, options).out == " ex_3     received TERM\n");
  CHECK(run_moorage({"kill", "ex_3", "9"}, options).out == " ex_3     received KILL\n");
  CHECK(run_moorage({"kill", "ex_3"}, options).out ==
        " ex_3     ending, killed if it does not end; wait for it: moorage wait ex_3\n");
  CHECK(run_moorage({"kill", "nonsense"}, options).code == 1);
}

TEST_CASE("run --rm deletes its workspace and exits with the command's code") {
  std::string created;
  ScriptedServer server([&](Call& call) {
    const std::string body = call.body();
    if (call.is("POST /v1/workspaces")) {
      created = body;
      return call.reply(201, R"({"id":"ws_5","name":"run-5"})", test::json_header());
    }
    if (call.method == "DELETE") return call.reply(200, "{}", test::json_header());
    call.begin(200, "Moorage-Exec: ex_7\r\n");
    call.chunk(base::encode_record(base::RecordKind::standard_output, "hello\n") +
               base::encode_record(base::RecordKind::end, R"({"state":"exited","exit_code":4})"));
    call.end();
  });
  const Ran ran = run_moorage({"run", "--rm", "--repo", "u", "-n", "--", "true"},
                              {server.socket_path(), "", {}});
  CHECK(ran.code == 4);
  CHECK(ran.out == "hello\n");
  CHECK(ran.err == "");
  server.settle();
  CHECK(Json::parse(created).flag("disposable"));
  CHECK(server.seen().back().method + " " + server.seen().back().target ==
        "DELETE /v1/workspaces/ws_5?purge=1");
}

TEST_CASE("set sends only the given options and prints the daemon's notice") {
  std::string sent;
  ScriptedServer server([&](Call& call) {
    sent = call.method + " " + call.path + " " + call.body();
    const std::string limits = call.method == "GET" ? R"({"memory_bytes":4294967296,"cpus":0.5})"
                                                    : R"({"memory_bytes":1073741824,"cpus":0.5})";
    call.reply(200,
               R"({"name":"auth","notice":"from the next sandbox on","limits":)" + limits + "}",
               test::json_header());
  });
  const RunOptions options{server.socket_path(), "", {}};
  const Ran ran = run_moorage({"set", "auth", "--memory", "1G", "--cpus", "0.5"}, options);
  CHECK(ran.err == "");
  CHECK(ran.out ==
        " set      auth\n"
        "          memory 4G -> 1G\n"
        "          cpus 0.5 (unchanged)\n"
        " note     from the next sandbox on\n");
  CHECK(sent == R"(PATCH /v1/workspaces/auth {"limits":{"memory_bytes":1073741824,"cpus":0.5}})");
  const Ran nothing = run_moorage({"set", "auth"}, options);
  CHECK(nothing.code == 1);
  CHECK(nothing.err.find("set needs an option") != std::string::npos);
}

TEST_CASE("info shows the hosts of a backend on other machines") {
  ScriptedServer server(answers("/v1/info", R"({"version":"1","backends":[
      {"name":"ssh","usable":true,"isolation":"userns","hosts":[
        {"name":"a","sandboxes":2,"max_sandboxes":4,"last_contact":"2026-11-21T09:12:04.512Z"},
        {"name":"b","sandboxes":0,"max_sandboxes":1,"last_error":"no \u001b[31mroute"}]}]})"));
  const Ran ran = run_moorage({"info"}, {server.socket_path(), "", {}});
  CHECK(ran.code == 0);
  CHECK(ran.out.find("ssh: userns") != std::string::npos);
  CHECK(ran.out.find("a: 2 of 4 sandboxes, answered at 2026-11-21T09:12:04.512Z") !=
        std::string::npos);
  CHECK(ran.out.find("b: 0 of 1 sandbox; the last try failed: no ") != std::string::npos);
  CHECK(ran.out.find('\x1b') == std::string::npos);
}
