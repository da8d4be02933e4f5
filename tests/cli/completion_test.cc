// Completion from the table of commands, and from a daemon that answers, lies or is down.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <sstream>

#include "base/os/process.h"
#include "cli/client/json.h"
#include "cli/commands.h"
#include "program.h"
#include "scripted_server.h"

using namespace moorage;
using test::Call;
using test::Ran;
using test::run_moorage;
using test::RunOptions;
using test::ScriptedServer;

namespace {

using Words = std::vector<std::string>;

std::string answer_to(const std::string& target) {
  const std::string mine = R"(,"owner":)" + std::to_string(::getuid());
  if (target == "/v1/workspaces") {
    return R"({"workspaces":[{"id":"ws_1","name":"auth","state":"ready","repo":{"name":"acme/shop"})" +
           mine + R"(},{"id":"ws_2","name":"theirs","state":"ready","owner":4000000},)" +
           R"({"id":"ws_3","name":"a;reboot","state":"ready")" + mine + "}]}";
  }
  if (target == "/v1/workspaces?deleted=1") {
    return R"({"workspaces":[{"id":"ws_1","name":"auth","state":"ready")" + mine +
           R"(},{"id":"ws_9","name":"gone","state":"deleted")" + mine + "}]}";
  }
  if (target == "/v1/execs")
    return R"([{"id":"ex_3","state":"running","argv":["my-agent","it\u001b[31m\n"]}])";
  if (target == "/v1/repos")
    return R"([{"id":"repo_1","name":"acme/shop","url":"https://x/shop"}])";
  if (target == "/v1/info") return R"({"backends":[{"name":"lxc","isolation":"userns"}]})";
  return "{}";
}

struct Scene {
  ScriptedServer server{
      [](Call& call) { call.reply(200, answer_to(call.target), test::json_header()); }};
  Ran run(Words words) {
    words.insert(words.begin(), {"completion", "words", "--"});
    return run_moorage(words, {server.socket_path(), "", {}});
  }
  // The candidates without their help.
  Words complete(const Words& words) {
    const Ran ran = run(words);
    CHECK(ran.code == 0);
    CHECK(ran.err.empty());
    Words found;
    std::istringstream lines(ran.out);
    for (std::string line; std::getline(lines, line);)
      found.push_back(line.substr(0, line.find('\t')));
    return found;
  }
};

bool has(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace

TEST_CASE("every command and every option can be completed") {
  Scene scene;
  const Words first = scene.complete({""});
  for (const cli::Command& command : cli::all_commands()) {
    CAPTURE(command.name);
    Words words;
    std::istringstream parts{std::string(command.name)};
    for (std::string part; parts >> part;) words.push_back(part);
    CHECK(has(first, words[0]));
    if (words.size() == 2) CHECK(has(scene.complete({words[0], ""}), words[1]));
    words.emplace_back("-");
    const Words options = scene.complete(words);
    CHECK(has(options, "--json"));
    const auto told = cli::told_by([&](cli::Options& all) { command.declare(all); });
    for (const cli::ToldOption& option : told) {
      const std::string name = option.text.names.substr(option.text.names.rfind(',') + 1);
      if (!option.is_argument) CHECK(has(options, name));
    }
  }
}

TEST_CASE("help completes topics, commands and the commands of a group") {
  Scene scene;
  CHECK(scene.complete({"help", "snap"}) == Words{"snapshots", "snapshot"});
  CHECK(scene.complete({"help", "disk"}) == Words{"disk"});
  CHECK(scene.complete({"help", "repo", "f"}) == Words{"fetch"});
  CHECK(scene.complete({"help", "show", ""}).empty());
}

TEST_CASE("names from the daemon complete where they fit") {
  Scene scene;
  CHECK(scene.complete({"show", ""}) == Words{"auth", "theirs"});
  CHECK(scene.complete({"exec", "--timeout", "5m", "au"}) == Words{"auth"});
  CHECK(scene.complete({"--json", "stop", "auth", ""}) == Words{"auth", "theirs"});
  CHECK(scene.complete({"undelete", ""}) == Words{"gone"});
  CHECK(scene.complete({"attach", ""}) == Words{"ex_3"});
  CHECK(scene.complete({"logs", "auth", ""}) == Words{"ex_3"});
  CHECK(scene.complete({"repo", "fetch", "ac"}) == Words{"acme/shop"});
  CHECK(scene.complete({"create", "--repo", ""}) == Words{"https://x/shop"});
  CHECK(scene.complete({"create", "--backend=l"}) == Words{"--backend=lxc"});
  CHECK(scene.complete({"cp", "a"}) == Words{"auth:"});
  CHECK(scene.complete({"exec", "auth", ""}).empty());
  CHECK(scene.complete({"exec", "auth", "--", "l"}).empty());
  CHECK(scene.complete({"create", "--name", ""}).empty());
  CHECK(scene.complete({"nonsense", ""}).empty());
}

TEST_CASE("words that a terminal or a shell would act on are left out") {
  Scene scene;
  CHECK(scene.run({"show", "a"}).out == "auth\tacme/shop\n");
  const std::string shown = scene.run({"attach", ""}).out;
  CHECK(shown.find('\x1b') == std::string::npos);
  CHECK(std::count(shown.begin(), shown.end(), '\n') == 1);
}

TEST_CASE("without a daemon commands and options still complete, without an error") {
  const auto quiet = [](const Words& words) {
    Words all{"completion", "words", "--"};
    all.insert(all.end(), words.begin(), words.end());
    return run_moorage(all, {"/nowhere/api.sock", "", {}});
  };
  for (const Words& words :
       {Words{"show", ""}, Words{"attach", ""}, Words{"create", "--repo", ""}}) {
    const Ran ran = quiet(words);
    CHECK((ran.code == 0 && ran.out.empty() && ran.err.empty()));
  }
  CHECK(quiet({"sto"}).out.starts_with("stop\t"));

  ScriptedServer broken{[](Call& call) { call.reply(200, "[{", test::json_header()); }};
  const Ran ran =
      run_moorage({"completion", "words", "--", "show", ""}, {broken.socket_path(), "", {}});
  CHECK((ran.code == 0 && ran.out.empty() && ran.err.empty()));
}

TEST_CASE("bash completes with the script") {
  Scene scene;
  const auto complete = [&](const std::string& line) {
    const std::string program(MOORAGE_PROGRAM);
    base::ProcessOptions options;
    options.environment = {{"MOORAGE_SOCKET", scene.server.socket_path()},
                           {"PATH", program.substr(0, program.rfind('/')) + ":/usr/bin:/bin"}};
    options.input = "set -u; source <(moorage completion bash); COMP_LINE='" + line +
                    "'; COMP_POINT=${#COMP_LINE}; _moorage; printf '%s\\n' \"${COMPREPLY[@]}\"";
    const auto result = base::run_process({"/bin/bash"}, options);
    CHECK(result.error.empty());
    return result.output;
  };
  CHECK(complete("moorage sho") == "show\n");
  CHECK(complete("moorage show a") == "auth\n");
  CHECK(complete("moorage create --repo https:") == "//x/shop\n");
  CHECK(complete("moorage create --backend=") == "lxc\n");
  CHECK(complete("moorage repo ") == "add\nls\nfetch\nrm\n");
}
